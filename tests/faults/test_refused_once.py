"""A definite refusal is raised once: Spark would try a task four times that raised it."""

from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.planning import pin_plan
from spark_cas.testing.writing import append_foreign
from tests.faults.checker import files_of
from tests.faults.failpoints import Failpoints
from tests.faults.rig import Driver
from tests.faults.rows import PARTITIONS, make_rows, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_conflict_in_every_partition_is_raised_once_and_names_them_all(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    with open_log(str(log)) as opened:
        opened.create(PARTITIONS)
        pin_plan(opened, "load", ExpectedOffsets("end"))
        for partition in range(PARTITIONS):
            append_foreign(opened, partition, "somebody else's")
    before = files_of(log)

    answer = driver.write(write_input(tmp_path / "input", make_rows()), log, job="load")

    assert answer["kind"] == "CONFLICT", answer["error"]
    assert answer["error"].count("[CONFLICT]") == 1
    assert answer["failed_tasks"] == 0
    assert answer["stage_attempts"] == 1
    assert files_of(log) == before
    for partition in range(PARTITIONS):
        assert f"partition {partition}" in answer["error"]
