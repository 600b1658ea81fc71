"""Write the stored logs of this version: python -m tests.formats.make conf/kafka tests/formats/v0.1.0

Run it once per release, before the release. Later versions must read the result: see test_formats.py.
"""

import base64
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from spark_cas.core.load_locks import LoadLock
from spark_cas.core.plan import Completion, Plan, Progress
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.contract.whole import run_whole
from tests.kafka.clients import SECONDS, create_topic
from tests.objects.places import local_log
from tests.support.batches import run_batch
from tests.support.loads import crash_after_chunks, run_job
from tests.support.writing import records_in
from tools.kafka_broker import KafkaBroker

PARTITIONS = 2
JOBS = ("complete", "atomic", "stream", "interrupted", "after")
INTERRUPTED = {0: ["i0", "i1", "i2", "i3"], 1: ["i4"]}
"""The rows of the interrupted job. A later version appends the missing ones."""
LONG = "long-" + "n" * 1000
"""A value that the registry compresses, in the input list of a job."""


def fill(log: Backend) -> None:
    """Append jobs of all kinds, and one expansion."""
    run_job(log, "complete", {0: ["a", "b", "c", "d"], 1: ["e"]})
    run_whole(log, "atomic", {0: ["f", "g"], 1: ["h"]})
    crash_after_chunks(log, "interrupted", INTERRUPTED, 1, expected="none")
    expand_log(log, PARTITIONS + 1)
    run_job(log, "after", {0: ["x"], 2: ["y"]})
    run_batch(log, 0, {0: ["s0"], 1: ["s1"]})
    run_batch(log, 1, {0: ["s2"]})
    log.put_entry("input", "complete/digest", json.dumps({"arguments": {}, "bytes": 1, "count": 1, "files": LONG}))
    lock = LoadLock("locked", "run", ((0, PARTITIONS),), "", 1, ("before",))
    assert log.put_load_locks(log.load_locks().with_lock(lock))


def facts(log: Backend) -> dict[str, object]:
    """Return the layout, records and registry of a log as JSON values."""
    layouts = log.layouts()
    rows = {
        partition: [
            [offset, *(None if row[name] is None else row[name].decode() for name in ("key", "value"))]
            for offset, row in records_in(log, partition)
        ]
        for partition in range(layouts.layout.partitions)
    }
    plans = {job: log.plan(job) for job in log.jobs()}
    done = {job: log.completion(job) for job in plans}
    result = {
        "rows": rows,
        "layouts": asdict(layouts),
        "plans": {job: _fields(plan) for job, plan in plans.items()},
        "completions": {job: _fields(each) for job, each in done.items()},
        "progress": {job: [_fields(log.progress(each, job)) for each in rows] for job in plans},
        "input": log.entry("input", "complete/digest"),
        "locks": asdict(log.load_locks()),
    }
    document: dict[str, object] = json.loads(json.dumps(result))
    return document


def _fields(value: Plan | Progress | Completion | None) -> dict[str, object] | None:
    return None if value is None else asdict(value)


def main(arguments: Iterable[str]) -> None:
    """Write the logs to a folder."""
    conf, into = map(Path, arguments)
    into.mkdir(parents=True, exist_ok=True)
    expected = {"directory": _directory(into / "directory.zip")}
    with KafkaBroker(conf) as broker:
        expected["kafka"] = _kafka(broker.bootstrap, into / "kafka.json")
    (into / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


def _directory(file: Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, local_log(Path(folder) / "log") as log:
        log.create(PARTITIONS, "crc32")
        fill(log)
        log.trim(1, 1)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            root = Path(folder) / "log"
            for each in sorted(root.rglob("*")):
                if each.is_file():
                    archive.writestr(zipfile.ZipInfo(str(each.relative_to(root))), each.read_bytes())
        return facts(log)


def _kafka(address: str, file: Path) -> dict[str, object]:
    topic = create_topic(address, PARTITIONS)
    spec = KafkaSpec(address, topic, prefix=topic)
    with KafkaLog(spec) as log:
        fill(log)
        result = facts(log)
    stored = {
        "topic": topic,
        "registry": _records(address, spec.registry_topic),
        "layouts": _records(address, spec.layouts_topic),
        "ledger": {job: _metadata(address, spec.group(job), topic) for job in JOBS},
        "locks": _metadata(address, spec.load_locks_group, topic)[0],
    }
    file.write_text(json.dumps(stored, indent=1) + "\n")
    return result


def _records(address: str, topic: str) -> list[list[str | int | None]]:
    """Return the records of a topic as [partition, offset, key, value], in base64."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "formats", "isolation.level": "read_committed"})
    partitions = reader.list_topics(topic, SECONDS).topics[topic].partitions
    reader.assign([TopicPartition(topic, each, 0) for each in partitions])
    result = []
    while message := reader.poll(3):
        texts = (
            None if each is None else base64.b64encode(each).decode() for each in (message.key(), message.value())
        )
        result.append([message.partition(), message.offset(), *texts])
    reader.close()
    return sorted(result, key=lambda each: each[:2])


def _metadata(address: str, group: str, topic: str) -> list[str | None]:
    member = Consumer({"bootstrap.servers": address, "group.id": group})
    partitions = [TopicPartition(topic, each) for each in range(PARTITIONS + 1)]
    result = [each.metadata for each in member.committed(partitions, SECONDS)]
    member.close()
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
