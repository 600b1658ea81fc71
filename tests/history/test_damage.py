"""The checker accepts every behavior of a correct log, and detects each kind of damage."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.history.check_log import check_log
from tests.history.made import records_of
from tests.history.operations import FAIL, OK, Operation
from tests.history.records import Found
from tests.history.simulated import STEPS, Step, World

pytestmark = pytest.mark.timeout(900)  # for the nightly profile

Damage = Callable[[World], Iterator[World]]


def changed(world: World, partition: int, records: list[Found]) -> World:
    return World({**world.log, partition: records}, world.ends, world.history)


def appends(world: World, outcome: str) -> list[Operation]:
    return [each for each in world.history if each.name == "append" and each.outcome == outcome]


def chunks_of(world: World) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of acknowledged records: (partition, first position, position after the last)."""
    for told in appends(world, OK):
        for text, (base, end) in told.result["ranges"].items():
            places = [n for n, each in enumerate(world.log[int(text)]) if base <= each.offset < end]
            yield int(text), places[0], places[-1] + 1


def a_record_is_lost(world: World) -> Iterator[World]:
    for at, records in world.log.items():
        for n in range(len(records)):
            yield changed(world, at, records[:n] + records[n + 1 :])


def an_acknowledged_append_is_lost(world: World) -> Iterator[World]:
    for at, begin, end in chunks_of(world):
        yield changed(world, at, world.log[at][:begin] + world.log[at][end:])


def records_are_there_twice(world: World) -> Iterator[World]:
    for at, begin, end in chunks_of(world):
        again = [Found(world.ends[at] + n, each.record) for n, each in enumerate(world.log[at][begin:end])]
        yield changed(world, at, world.log[at] + again)


def neighbours_are_swapped(world: World) -> Iterator[World]:
    for at, records in world.log.items():
        for n in range(len(records) - 1):
            first, second = records[n : n + 2]
            pair = [Found(first.offset, second.record), Found(second.offset, first.record)]
            yield changed(world, at, records[:n] + pair + records[n + 2 :])


def what_was_refused_is_there(world: World) -> Iterator[World]:
    """Only for appends that are not loads: a load may keep a prefix in the partitions without a rejection."""
    for told in (each for each in appends(world, FAIL) if each.arguments["chunk_records"] is None):
        for text, rows in told.arguments["records"].items():
            records = records_of(told.arguments["job"], int(text), len(rows))
            late = [Found(world.ends[int(text)] + n, each) for n, each in enumerate(records)]
            yield changed(world, int(text), world.log[int(text)] + late)


def a_stranger_writes(world: World) -> Iterator[World]:
    for at in world.log:
        yield changed(world, at, [*world.log[at], Found(world.ends[at], records_of("stranger", at)[0])])


def the_bytes_of_a_record_change(world: World) -> Iterator[World]:
    for at, records in world.log.items():
        for n, each in enumerate(records):
            other = Found(each.offset, each.record._replace(value=each.record.value + "'"))
            yield changed(world, at, [*records[:n], other, *records[n + 1 :]])


def another_range_is_told(world: World) -> Iterator[World]:
    for told in appends(world, OK):
        ranges = {text: [base + 1, end + 1] for text, (base, end) in told.result["ranges"].items()}
        lie = replace(told, result={"ranges": ranges})
        yield World(world.log, world.ends, [lie if each is told else each for each in world.history])


def a_reader_is_told_an_older_end(world: World) -> Iterator[World]:
    """Change the result of the last read, which began after all acknowledged appends had ended."""
    *before, last = world.history
    late = replace(last, start_ns=last.start_ns + 1000, end_ns=last.start_ns + 1001)
    for text, (end, count, digest) in last.result["seen"].items():
        if any(text in told.result["ranges"] for told in appends(world, OK)):
            assert count
            seen = {**last.result["seen"], text: [0, 0, 0]}
            yield World(world.log, world.ends, [*before, replace(late, result={"seen": seen})])
            seen = {**last.result["seen"], text: [end, count, digest ^ 1]}
            yield World(world.log, world.ends, [*before, replace(late, result={"seen": seen})])


DAMAGES: list[Damage] = [
    a_record_is_lost,
    an_acknowledged_append_is_lost,
    records_are_there_twice,
    neighbours_are_swapped,
    what_was_refused_is_there,
    a_stranger_writes,
    the_bytes_of_a_record_change,
    another_range_is_told,
    a_reader_is_told_an_older_end,
]


@given(STEPS)
def test_a_log_that_keeps_its_promises_is_allowed(steps: list[Step]):
    world = World().run(steps)
    assert check_log(world.history, world.log) == []


@pytest.mark.parametrize("damage", DAMAGES)
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(STEPS, st.data())
def test_each_kind_of_damage_is_detected(damage: Damage, steps: list[Step], data: st.DataObject):
    damaged = list(damage(World().run(steps)))
    assume(damaged)
    one = data.draw(st.sampled_from(range(len(damaged))))
    assert check_log(damaged[one].history, damaged[one].log) != []


def without_reads(world: World) -> World:
    return World(world.log, world.ends, appends(world, OK) + appends(world, FAIL) + appends(world, "info"))


@pytest.mark.parametrize(
    "damage", [records_are_there_twice, an_acknowledged_append_is_lost, what_was_refused_is_there]
)
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(STEPS, st.data())
def test_damage_is_detected_in_unread_records(damage: Damage, steps: list[Step], data: st.DataObject):
    damaged = list(damage(without_reads(World().run(steps))))
    assume(damaged)
    one = data.draw(st.sampled_from(range(len(damaged))))
    assert check_log(damaged[one].history, damaged[one].log) != []
