"""This version reads the logs that released versions wrote, and continues their jobs."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from spark_cas.log import clock
from spark_cas.log.jobs import forget_job
from tests.formats.make import INTERRUPTED, JOBS, facts
from tests.formats.stored_topic import restored_topic
from tests.objects.places import local_log
from tests.support.batches import run_batch
from tests.support.loads import run_job, run_rest
from tests.support.writing import values_in

VERSIONS = sorted(each for each in Path(__file__).parent.glob("v*"))


@pytest.fixture(params=VERSIONS, ids=lambda each: each.name)
def version(request) -> Path:
    return request.param


@pytest.fixture(params=["directory", pytest.param("kafka", marks=pytest.mark.kafka)])
def stored(request, version, tmp_path, monkeypatch):
    """The stored log in a directory or on a real broker, and the facts about it as JSON."""
    recorded = json.loads((version / "expected.json").read_text())[request.param]
    # Some jobs could not be continued days after their last chunk.
    times = [each["committed_at_ms"] for entries in recorded["progress"].values() for each in entries if each]
    monkeypatch.setattr(clock, "now_ms", lambda: max(times) + 60_000)
    if request.param == "kafka":
        broker = request.getfixturevalue("broker")
        with restored_topic(broker.bootstrap, json.loads((version / "kafka.json").read_text()), recorded) as restored:
            yield restored
        return
    with zipfile.ZipFile(version / "directory.zip") as archive:
        archive.extractall(tmp_path / "log")
    with local_log(tmp_path / "log") as opened:
        yield opened, recorded


def has(actual: Any, recorded: Any) -> bool:
    """Return whether a value has all recorded fields. A later version may have more."""
    if isinstance(recorded, dict):
        return all(name in actual and has(actual[name], each) for name, each in recorded.items())
    if isinstance(recorded, list):
        return len(actual) == len(recorded) and all(map(has, actual, recorded))
    return bool(actual == recorded)


def test_log_is_read_and_its_jobs_are_continued(stored):
    log, recorded = stored
    assert recorded["rows"].keys() == {"0", "1", "2"}
    assert recorded["plans"].keys() == {*JOBS}
    actual = facts(log)
    for name, each in recorded.items():
        assert has(actual[name], each), name
    before = {each: values_in(log, each) for each in range(3)}
    assert run_job(log, "after", {0: ["x"], 2: ["y"]}).rows == 2
    assert run_rest(log, "interrupted", INTERRUPTED, expected="none").rows > 0
    run_batch(log, 1, {0: ["s2"]})
    run_batch(log, 2, {2: ["s3"]})
    added = [value for each in range(3) for value in values_in(log, each)[len(before[each]) :]]
    assert sorted(added) == ["i3", "i4", "s3"]
    assert forget_job(log, "after", 0, force=True)
    assert "after" not in log.jobs()
