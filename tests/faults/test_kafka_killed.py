"""A load into a topic whose Python workers and drivers are killed with SIGKILL at random moments."""

import os
import random
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_cas import open_log
from spark_cas.log.backend import Backend
from tests.faults.checker import differences, digest_of
from tests.faults.failpoints import VARIABLE, Failpoints, until
from tests.faults.rig import Driver
from tests.faults.rows import PARTITIONS, Row, make_rows, routed, write_input
from tests.long import full
from tools.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]

ROWS = make_rows(12_000)
CHUNK = 300
WORKERS_KILLED_EACH = 2


class Watched:
    """The high watermarks of a topic. They count the sent records, also those of open transactions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})

    def offsets(self) -> int:
        """Return the sum of the high watermarks of all partitions, or 0 before the topic exists."""
        try:
            return sum(
                self._consumer.get_watermark_offsets(TopicPartition(self._topic, each), 5)[1]
                for each in range(PARTITIONS)
            )
        except KafkaException:
            return 0

    def has(self, offsets: int) -> bool:
        return self.offsets() >= offsets


def rows_of(log: Backend, partition: int) -> list[Row]:
    """Return the rows that a reader of committed records gets."""
    return [
        row
        for _, records in log.read(partition, log.bounds(partition).range)
        for row in zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
    ]


def workers_of(failpoints: Failpoints) -> Iterator[int]:
    """Yield the Python workers that serve tasks. Their parent is a daemon of the same program."""
    mark = f"{VARIABLE}={failpoints.environment[VARIABLE]}".encode()
    serving = {int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _serves(each, mark)}
    for pid in serving:
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # the process has ended
            continue
        if parent in serving:
            yield pid


def _serves(process: Path, mark: bytes) -> bool:
    try:
        command = (process / "cmdline").read_bytes()
        return b"pyspark.daemon" in command and mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.parametrize("drivers", [1, *full(2)])
def test_every_row_is_stored_once_in_order_after_each_kill(
    drivers: int, driver: Driver, failpoints: Failpoints, broker: KafkaBroker, tmp_path: Path
):
    chance = random.Random()
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    address = f"kafka://{broker.bootstrap}/{topic}"
    source = write_input(tmp_path / "input", ROWS)
    watched = Watched(broker.bootstrap, topic)
    killed_workers = 0

    def begin() -> None:
        driver.begin(source, address, job="load", maxRecordsPerChunk=str(CHUNK), fencedRetryWaitMs="2000")

    begin()
    for _ in range(drivers):
        for _ in range(WORKERS_KILLED_EACH):
            until(partial(watched.has, watched.offsets() + chance.randrange(1, 1500)), "more rows")
            workers = sorted(workers_of(failpoints))
            if workers:
                os.kill(chance.choice(workers), signal.SIGKILL)
                killed_workers += 1
        driver.kill()
        begin()
    answer = driver.answer()

    assert answer["error"] is None
    assert killed_workers, "no worker was there to be killed"
    with open_log(address) as log:
        for partition, expected in routed(ROWS).items():
            assert not differences(rows_of(log, partition), expected)
        completion = log.completion("load")
    assert completion is not None
    digests = {each.progress.partition: each.progress.digest for each in completion.partitions}
    assert digests == {partition: digest_of(rows) for partition, rows in routed(ROWS).items()}
