"""A seed determines the schedule, and the nemesis ends every fault that it begins."""

import random
from threading import Event

import pytest

from tests.chaos.nemesis import Nemesis
from tests.chaos.schedule import QUIET_SECONDS, STORM_SECONDS, Planned, schedule
from tests.history.operations import INFO, OK, read_history
from tests.history.recorder import Recorder

KINDS = ["a", "b", "c", "d", "e"]


def test_the_same_seed_gives_the_same_schedule_and_another_another():
    assert schedule(7, 60, KINDS) == schedule(7, 60, KINDS)
    assert schedule(7, 60, KINDS) != schedule(8, 60, KINDS)


@pytest.mark.parametrize("seed", range(1, 20))
def test_each_kind_occurs_within_a_minute(seed):
    many = [f"{number}" for number in range(13)]
    assert {each.kind for each in schedule(seed, 60, many)} == set(many)


def test_each_kind_occurs_and_storms_have_quiet_windows_between():
    planned = schedule(7, 120, KINDS)
    assert {each.kind for each in planned} == set(KINDS)
    assert all(0 <= each.begin < each.end <= 120 for each in planned)
    for storm in range(1, 100, int(STORM_SECONDS + QUIET_SECONDS)):
        quiet = storm + STORM_SECONDS
        assert not [each for each in planned if each.begin < quiet + QUIET_SECONDS and each.end > quiet]


class Once:
    """A fault with one target."""

    def __init__(self) -> None:
        self.going_on = 0
        self.begun = 0

    def begin(self, chance: random.Random, seconds: float):
        if self.going_on:
            return None
        self.going_on, self.begun = 1, self.begun + 1
        return "it", self.end

    def end(self) -> None:
        self.going_on = 0


def test_nemesis_ends_all_faults_and_then_calms(tmp_path):
    fault, calms = Once(), []
    planned = [Planned(0, 0.05, "x", 1), Planned(0.01, 0.02, "x", 2), Planned(0.1, 9, "x", 3)]
    with Recorder(tmp_path / "nemesis.jsonl", "nemesis") as recorder:
        nemesis = Nemesis({"x": fault}, recorder, lambda: calms.append(fault.going_on))
        nemesis.run(planned, 0.2, Event())
    assert (fault.going_on, fault.begun, nemesis.struck["x"]) == (0, 2, 2)
    assert calms
    assert set(calms) == {0}
    told = [(each.outcome, each.result["target"]) for each in read_history(tmp_path)]
    assert told == [(OK, "it"), (INFO, ""), (OK, "it")]


def test_stopped_nemesis_ends_running_faults(tmp_path):
    fault, stop = Once(), Event()
    stop.set()
    with Recorder(tmp_path / "nemesis.jsonl", "nemesis") as recorder:
        Nemesis({"x": fault}, recorder, lambda: None).run([Planned(0, 60, "x", 1)], 60, stop)
    assert fault.going_on == 0
