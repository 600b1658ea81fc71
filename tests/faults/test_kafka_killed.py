"""A load into a topic whose Python workers and drivers are killed by signal 9 at random moments."""

import os
import random
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.protocol import Backend
from spark_cas.testing.kafka_broker import KafkaBroker
from tests.faults.checker import digest_of
from tests.faults.failpoints import Failpoints, until
from tests.faults.rig import Driver
from tests.faults.rows import Row, make_rows, routed, write_input

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]

ROWS = make_rows(24_000)
SEEDS = (1, 2)


def rows_in(log: Backend) -> dict[int, list[Row]]:
    """What a reader of committed records finds, by partition."""
    return {
        partition: [
            row
            for _, records in log.read(partition, log.bounds(partition).range)
            for row in zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
        ]
        for partition in range(log.layout().partitions)
    }


def appended(log: Backend) -> int:
    """Rows of the load that are in the topic, which may not be there yet."""
    try:
        found = [log.progress(partition, "load") for partition in range(log.layout().partitions)]
    except LogNotFoundError:
        return 0
    return sum(each.rows for each in found if each)


def reached(log: Backend, goal: int) -> bool:
    return appended(log) >= goal or log.completion("load") is not None


def workers_of(failpoints: Failpoints) -> Iterator[int]:
    """Python workers that serve tasks: forked by a daemon, which is one of their own kind."""
    marks = {f"{name}={value}".encode() for name, value in failpoints.environment.items()}
    daemons = {int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _is_daemon(each, marks)}
    for pid in daemons:
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent in daemons:
            yield pid


def _is_daemon(process: Path, marks: set[bytes]) -> bool:
    try:
        serves_tasks = (process / "cmdline").read_bytes().endswith(b"pyspark.worker\0")
        return serves_tasks and marks.issubset((process / "environ").read_bytes().split(b"\0"))
    except OSError:
        return False


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_is_there_once_and_in_order_whoever_was_killed_and_when(
    seed: int, driver: Driver, failpoints: Failpoints, broker: KafkaBroker, tmp_path: Path
):
    chance = random.Random(seed)
    address = f"kafka://{broker.bootstrap}/flights-{uuid.uuid4().hex[:8]}"
    source = write_input(tmp_path / "input", ROWS)
    killed_workers = 0

    def begin() -> None:
        driver.begin(source, address, job="load", maxRecordsPerChunk="300", fencedWaitMs="2000")

    begin()
    with open_log(address) as log:
        for _ in range(2):
            until(partial(reached, log, 1), "the first chunk")
            for _ in range(2):
                goal = appended(log) + chance.randrange(300, 4000)
                until(partial(reached, log, goal), "more chunks")
                workers = sorted(workers_of(failpoints))
                if workers:
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    killed_workers += 1
            driver.kill()
            begin()
        answer = driver.answer()

        assert answer["error"] is None
        assert killed_workers, "no worker was there to be killed"
        assert rows_in(log) == routed(ROWS)
        completion = log.completion("load")
    assert completion is not None
    digests = {each.progress.partition: each.progress.digest for each in completion.partitions}
    assert digests == {partition: digest_of(rows) for partition, rows in routed(ROWS).items()}
