"""A driver (Python and JVM) that copies a log as a stream is killed with SIGKILL at each step of its source."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from spark_cas import open_log
from spark_cas.core.outcome import Appended
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend
from tests.faults.failpoints import Failpoints, Point
from tests.faults.rig import Driver
from tests.support.writing import JobWriter, plan_of, records_in
from tools.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

STEPS = ("latestOffset", "partitions", "read", "commit")
"""In this order. After ``latestOffset``, which follows ``initialOffset``, nothing is recorded yet. After
``partitions`` the batch is recorded, after ``read`` a part of it was read, and after ``commit`` it is complete."""
PARTITIONS = 2
ROWS = 60
"""Rows that are appended to each partition before each run."""
BATCH = 60
ALL = 1000
CHUNK = 20
"""Records per chunk of the source. A task reads one chunk after the other."""


def fill(source: Backend, turn: int) -> None:
    """Append more rows than a batch takes, a few per key. A re-planned batch would hold other records."""
    for partition in range(PARTITIONS):
        rows = [{"key": f"{partition}-{at % 7}".encode(), "value": f"{turn}-{at:02d}".encode()} for at in range(ROWS)]
        writer = JobWriter(source, plan_of(source, f"fill-{turn}"), partition)
        for start in range(0, ROWS, CHUNK):
            chunk = pa.Table.from_pylist(rows[start : start + CHUNK], schema=RECORDS)
            assert isinstance(writer.append(chunk), Appended)


def rows_by_key(log: Backend) -> dict[bytes, list[bytes]]:
    """Return the values of each key in order."""
    found: dict[bytes, list[bytes]] = {}
    for partition in range(log.layout().partitions):
        for _, row in records_in(log, partition):
            found.setdefault(row["key"], []).append(row["value"])
    return found


def copy(
    steps: tuple[str, ...], driver: Driver, failpoints: Failpoints, addresses: tuple[str, str], folder: Path
) -> None:
    """Copy a growing log, killed at these steps. Check that each row is copied once and in order."""
    source_address, target_address = addresses

    def begin(taken: int) -> None:
        driver.begin(
            source_address,
            target_address,
            job="copy",
            partitions=str(PARTITIONS),
            orderBy="value",
            checkpointLocation=str(folder / "checkpoint"),
            maxOffsetsPerTrigger=str(taken),
        )

    with open_log(source_address) as source:
        source.create(PARTITIONS)
        for turn, step in enumerate(steps):
            fill(source, turn)
            failpoints.arm(Point("source", f"^{step}$", "wait"))
            begin(BATCH)
            failpoints.await_event("wait")
            driver.kill()
            failpoints.reset()
        fill(source, len(steps))
        begin(ALL)
        assert driver.answer()["error"] is None
        expected = rows_by_key(source)
    with open_log(target_address) as target:
        assert rows_by_key(target) == expected


@pytest.mark.full
def test_copied_log_has_every_row_once_in_order_after_each_kill(
    driver: Driver, failpoints: Failpoints, tmp_path: Path
):
    copy(STEPS, driver, failpoints, (str(tmp_path / "source"), str(tmp_path / "target")), tmp_path)


@pytest.mark.kafka
def test_copied_topic_has_every_row_once_in_order_after_each_kill(
    driver: Driver, failpoints: Failpoints, broker: KafkaBroker, tmp_path: Path
):
    name = f"kafka://{broker.bootstrap}/{uuid.uuid4().hex[:8]}"
    copy(("read",), driver, failpoints, (f"{name}-source", f"{name}-target"), tmp_path)
