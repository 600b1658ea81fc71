"""How a read divides offsets among tasks, as tables and as properties; no log and no JVM."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.offsets import OffsetRange
from spark_cas.options.read_range import Splitting, TopicPartition


def ranges_of(*sizes):
    return {TopicPartition("flights", at): OffsetRange(100, 100 + size) for at, size in enumerate(sizes)}


@pytest.mark.parametrize(
    ("sizes", "least", "most", "found"),
    [
        ((10, 4), None, None, [(0, 100, 110), (1, 100, 104)]),
        ((10, 0, 4), None, None, [(0, 100, 110), (2, 100, 104)]),
        ((10, 4), 1, None, [(0, 100, 110), (1, 100, 104)]),
        ((10, 4), 2, None, [(0, 100, 105), (0, 105, 110), (1, 100, 104)]),
        ((1, 27), 3, None, [(0, 100, 101), (1, 100, 109), (1, 109, 118), (1, 118, 127)]),
        ((2, 1), 50, None, [(0, 100, 101), (0, 101, 102), (1, 100, 101)]),
        ((10, 4), None, 4, [(0, 100, 103), (0, 103, 106), (0, 106, 110), (1, 100, 104)]),
        ((10, 4), None, 10, [(0, 100, 110), (1, 100, 104)]),
        ((9,), 2, 3, [(0, 100, 103), (0, 103, 106), (0, 106, 109)]),
        ((9,), 9, 3, [(0, at, at + 1) for at in range(100, 109)]),
        ((), 3, 3, []),
        ((0, 0), 3, 3, []),
    ],
)
def test_tasks(sizes, least, most, found):
    tasks = Splitting(least, most).split(ranges_of(*sizes))
    assert [(at.partition, part.base_offset, part.end_offset) for [(at, part)] in tasks] == found


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ([1] * 32, [1] * 32),
        ([1] * 63, [1] * 63),
        ([1] * 64, [2] * 32),
        ([1] * 1_000, [31] * 32 + [8]),
        ([4_000] * 128, [2] * 64),
        ([1] * 99 + [1_000_000] + [1] * 40, [4] * 24 + [3, 1] + [4] * 10),
        ([10_000] * 80, [1] * 80),
        ([0] * 100 + [5], [1]),
    ],
)
def test_of_many_partitions_those_with_few_offsets_share_tasks(sizes, found):
    assert [len(task) for task in Splitting().split(ranges_of(*sizes))] == found


def test_a_task_is_of_one_topic():
    ranges = {TopicPartition(topic, at): OffsetRange(0, 1) for topic in ("a", "b") for at in range(62)}
    tasks = Splitting().split(ranges)
    assert [{at.topic for at, _ in task} for task in tasks] == [{"a"}] * 21 + [{"b"}] * 21


@pytest.mark.parametrize("asked", [Splitting(min_partitions=1), Splitting(max_records=100)])
def test_requested_tasks_are_not_merged(asked):
    assert len(asked.split(ranges_of(*[1] * 100))) == 100


@given(st.lists(st.integers(0, 50), max_size=6) | st.lists(st.integers(0, 3_000), min_size=60, max_size=190))
def test_shared_tasks_hold_each_range_once_and_in_order(sizes):
    ranges = ranges_of(*sizes)
    tasks = Splitting().split(ranges)
    assert [each for task in tasks for each in task] == [(at, each) for at, each in ranges.items() if each]
    assert all(len(task) == 1 or sum(len(part) for _, part in task) <= 10_000 for task in tasks)
    assert len(tasks) >= min(len(ranges) - sizes.count(0), 32)


@given(st.lists(st.integers(0, 50), max_size=6), st.none() | st.integers(1, 40), st.none() | st.integers(1, 40))
def test_no_offset_is_dropped_or_doubled(sizes, least, most):
    ranges = ranges_of(*sizes)
    tasks = Splitting(least, most).split(ranges)
    covered = [(at, offset) for [(at, part)] in tasks for offset in range(part.base_offset, part.end_offset)]
    assert covered == [
        (at, offset) for at, each in ranges.items() for offset in range(each.base_offset, each.end_offset)
    ]
    assert all(0 < len(part) <= (most or 50) for [(_, part)] in tasks)
    assert len(tasks) >= min(least or 0, sum(sizes))
