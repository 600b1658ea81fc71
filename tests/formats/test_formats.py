"""This version reads the logs that released versions wrote, and continues their jobs."""

import base64
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from spark_cas.core.plan_json import recorded_completion, recorded_plan
from spark_cas.log.forgetting import forget_job
from spark_cas.log.kafka.registry import group_ledger, layouts, lock_in_group
from spark_cas.log.kafka.registry.compacted_map import Entries
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.formats.make import INTERRUPTED, JOBS, facts
from tests.objects.places import local_log
from tests.support.batches import run_batch
from tests.support.loads import run_job, run_rest
from tests.support.writing import values_in

VERSIONS = sorted(each for each in Path(__file__).parent.glob("v*"))


@pytest.fixture(params=VERSIONS, ids=lambda each: each.name)
def version(request) -> Path:
    return request.param


@pytest.fixture
def log(version, tmp_path):
    with zipfile.ZipFile(version / "directory.zip") as archive:
        archive.extractall(tmp_path / "log")
    with local_log(tmp_path / "log") as opened:
        yield opened


@pytest.fixture
def stored(version):
    """The records and the metadata of a topic."""
    return json.loads((version / "kafka.json").read_text())


def expected(version, place):
    return json.loads((version / "expected.json").read_text())[place]


def has(actual: Any, recorded: Any) -> bool:
    """Return whether a value has all recorded fields. A later version may have more."""
    if isinstance(recorded, dict):
        return all(name in actual and has(actual[name], each) for name, each in recorded.items())
    if isinstance(recorded, list):
        return len(actual) == len(recorded) and all(map(has, actual, recorded))
    return bool(actual == recorded)


def as_json(value):
    return json.loads(json.dumps(asdict(value)))


def test_directory_is_read(version, log):
    recorded = expected(version, "directory")
    assert recorded["rows"].keys() == {"0", "1", "2"}
    assert recorded["plans"].keys() == {*JOBS}
    actual = facts(log)
    for name, each in recorded.items():
        assert has(actual[name], each), name


def test_jobs_of_a_directory_are_continued(version, log):
    before = {each: values_in(log, each) for each in range(3)}
    assert run_job(log, "after", {0: ["x"], 2: ["y"]}).rows == 2
    assert run_rest(log, "interrupted", INTERRUPTED, expected="none").rows > 0
    run_batch(log, 1, {0: ["s2"]})
    run_batch(log, 2, {2: ["s3"]})
    added = [value for each in range(3) for value in values_in(log, each)[len(before[each]) :]]
    assert sorted(added) == ["i3", "i4", "s3"]
    assert forget_job(log, "after", 0, force=True)
    assert "after" not in log.jobs()


def entries_of(records, topic):
    """Return the entries of the partitions of a registry topic, as a client has them after a read."""
    readers: Any = SimpleNamespace(spec=KafkaSpec("localhost:1", topic, prefix=topic))
    partitions: dict[int, Entries] = {}
    for partition, offset, *data in records:
        entries = partitions.setdefault(partition, Entries(readers, readers, topic, partition))
        entries._take(offset, *(None if each is None else base64.b64decode(each) for each in data))
    return partitions.values()


def text_of(partitions, key):
    [text] = [text for each in partitions if (text := each.text(key)) is not None] or [None]
    return text


def test_registry_is_read(version, stored):
    recorded, topic = expected(version, "kafka"), stored["topic"]
    partitions = entries_of(stored["registry"], topic)
    for job in JOBS:
        assert has(as_json(recorded_plan(text_of(partitions, f"{topic}/plan/{job}"), job)), recorded["plans"][job])
        done = text_of(partitions, f"{topic}/completion/{job}")
        assert (done is None) == (recorded["completions"][job] is None)
        if done is not None:
            assert has(as_json(recorded_completion(done, job)), recorded["completions"][job])
    assert text_of(partitions, f"{topic}/input/complete/digest") == recorded["input"]


def test_layouts_are_read(version, stored):
    recorded, topic = expected(version, "kafka")["layouts"], stored["topic"]
    partitions = entries_of(stored["layouts"], topic)
    log_id = recorded["layout"]["log_id"]
    [expansion] = recorded["expansions"]
    text = text_of(partitions, f"{topic}/layout/{log_id}/{expansion['partitions']}")
    assert text is not None
    assert has(as_json(layouts._expansion(text)), expansion)
    intents = [key for each in partitions for key in each.held if "/expansion/" in key]
    assert [layouts._intent(text_of(partitions, key)).partitions for key in intents] == [expansion["partitions"]]


def test_ledgers_and_locks_are_read(version, stored):
    recorded = expected(version, "kafka")
    log_id = recorded["layouts"]["layout"]["log_id"]
    for job in JOBS:
        for partition, metadata in enumerate(stored["ledger"][job]):
            at = TopicPartition(stored["topic"], partition)
            progress = group_ledger._decode(metadata or None, at, log_id)
            entry = recorded["progress"][job][partition]
            assert (progress is None) == (entry is None)
            assert progress is None or has(as_json(progress), entry)
    assert has(as_json(lock_in_group._decode(stored["locks"])), recorded["locks"])
