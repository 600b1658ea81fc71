"""A driver is killed with SIGKILL while it saves the state of a log. An earlier saved state stays valid."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_cas import open_log
from tests.faults.failpoints import Failpoints, Point, until
from tests.faults.rig import Driver
from tests.support.writing import append_foreign

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(500)]

BEFORE_THE_OFFSETS = Point("saving", "^state-", "wait")


def keys_in(place: Path) -> list[str]:
    """Return the keys of the state that is saved in a folder: the rows that its offsets name, and no others."""
    (file,) = (place / "offsets").glob("part-*")
    rows = pq.read_table(place / json.loads(file.read_text())["state"], columns=["key"])
    return sorted(key.decode() for key in rows["key"].to_pylist())


def test_the_earlier_state_stays_good_and_the_same_command_succeeds_afterwards(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    earlier, whole, refreshed = (tmp_path / name for name in ("earlier", "whole", "refreshed"))
    commands = {whole: ("--output", str(whole)), refreshed: ("--output", str(refreshed), "--since", str(earlier))}
    with open_log(str(log)) as opened:
        opened.create(2)
        append_foreign(opened, 0, *"ab")
        append_foreign(opened, 1, *"cd")
        driver.begin_state(log, "--output", str(earlier))
        assert driver.answer()["error"] is None
        append_foreign(opened, 0, *"ef")
        append_foreign(opened, 1, *"g")

    for place, command in commands.items():
        failpoints.reset()
        failpoints.arm(BEFORE_THE_OFFSETS)  # no run passes this point
        driver.begin_state(log, *command)
        if place is whole:
            until(lambda: [*whole.glob("state-*/_temporary")], "rows that are being written")
        else:
            failpoints.await_event("wait")
        driver.kill()
        assert list(place.glob("state-*"))
        assert not (place / "offsets").exists()
        assert keys_in(earlier) == [*"abcd"]

    failpoints.reset()
    for place, command in commands.items():
        driver.begin_state(log, *command)
        assert driver.answer()["error"] is None
        assert keys_in(place) == [*"abcdefg"]
