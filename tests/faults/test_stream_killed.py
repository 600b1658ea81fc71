"""A driver (Python and JVM) that streams into a log is killed with SIGKILL repeatedly, and restarted."""

import os
from itertools import accumulate
from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.log.load.planning import job_progress
from tests.faults.failpoints import Failpoints, Point, chunk
from tests.faults.rig import Driver
from tests.faults.rows import PARTITIONS, make_rows, routed, write_input
from tests.long import full
from tests.support.writing import values_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

ROWS = make_rows()
FILES = 4
"""The number of files that `write_input` writes. Each file is a batch."""
CHUNK = 80
"""Each batch has several chunks in each partition."""
BATCHES = [routed(ROWS[number::FILES]) for number in range(FILES)]


def base_of(batch: int, partition: int) -> int:
    """Return the base offset of a batch in a partition."""
    return [0, *accumulate(len(rows[partition]) for rows in BATCHES)][batch]


def last_chunk_of(batch: int, partition: int) -> int:
    return base_of(batch, partition) + (len(BATCHES[batch][partition]) - 1) // CHUNK * CHUNK


KILLS = {
    "before anything is written": Point("linked", r"^_log/jobs/copy/plan\.json$", "wait"),
    "in the middle of the chunks of batch 0": Point("staged", chunk(0, CHUNK), "wait"),
    "after the commit of batch 0, between the tasks of batch 1": Point("before", chunk(2, base_of(1, 2)), "wait"),
    "before the commit of batch 2": Point("linked", chunk(3, last_chunk_of(2, 3)), "wait"),
}


FEW = ("before the commit of batch 2",)


@pytest.mark.parametrize("places", [FEW, *full(tuple(KILLS))], ids=len)
def test_every_row_is_there_once_and_in_order_wherever_the_driver_was_killed(
    places: tuple[str, ...], driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    for number in range(FILES):
        os.utime(Path(source, f"part-{number}.parquet"), (number, number))  # the source reads the oldest file first

    def begin() -> None:
        options = {"orderBy": "value", "checkpointLocation": str(tmp_path / "checkpoint")}
        driver.begin(source, log, job="copy", maxRecordsPerChunk=str(CHUNK), restless=False, order_by=(), **options)

    for place in places:
        failpoints.arm(KILLS[place])
        begin()
        failpoints.await_event("wait")
        driver.kill()
        failpoints.reset()

    for _ in range(2):
        begin()
        assert driver.answer()["error"] is None

    with open_log(str(log)) as opened:
        for partition in range(PARTITIONS):
            expected = [value.decode() for rows in BATCHES for value in sorted(value for _, value in rows[partition])]
            assert values_in(opened, partition) == expected
        assert {each.batch and (each.batch.id, each.batch.complete) for each in job_progress(opened, "copy")} == {
            (FILES - 1, True)
        }
