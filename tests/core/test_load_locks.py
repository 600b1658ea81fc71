"""Conflicts between locks, and the locks that a new one replaces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import FormatError
from spark_cas.core.load_locks import (
    MOST_HELD,
    LoadLock,
    LoadLocks,
    load_locks_from_json,
    ranges_of,
)
from spark_cas.core.recorded_fields import to_json


def lock(job, *partitions, run="run", after=()):
    return LoadLock(job, run, ranges_of(partitions), "", 5, after)


@given(st.sets(st.integers(0, 60)))
def test_ranges_cover_the_partitions_in_few_ranges(partitions):
    ranges = ranges_of(partitions)
    covered = LoadLock("job", "", ranges, "", 0).partitions
    assert partitions <= covered
    assert len(ranges) <= 8
    if len(ranges) < 8:
        assert partitions == covered
    assert all(end < base for (_, end), (base, _) in pairwise(ranges))


def test_only_others_with_a_partition_in_common_are_in_the_way():
    load_locks = LoadLocks(3, (lock("a", 0, 1), lock("b", 3), lock("c", 5, 6)))
    assert [each.job for each in load_locks.in_the_way("d", ranges_of([1, 2, 5]))] == ["a", "c"]
    assert [each.job for each in load_locks.in_the_way("a", ranges_of([0, 1, 2]))] == []


def test_number_of_locks_is_limited():
    full = LoadLocks(1, tuple(lock(f"{each}", each) for each in range(MOST_HELD)))
    assert full.leaving_no_room("new") == full.held
    assert full.leaving_no_room("0") == ()
    assert LoadLocks(1, full.held[1:]).leaving_no_room("new") == ()
    assert full.in_the_way("new", ((99, 100),)) == ()
    assert full.in_the_way("new", ((7, 100),)) == full.held[7:]


def test_lock_replaces_ended_locks_and_keeps_their_writers():
    load_locks = LoadLocks(
        3, (lock("dead", 0, after=("older",)), lock("b", 3), lock("me", 1, run="before", after=("x",)))
    )
    after = load_locks.with_lock(lock("me", 0, 1), over=[load_locks.held[0]])
    assert after.number == 4
    assert after.held == (lock("b", 3), lock("me", 0, 1, after=("dead", "older", "x")))
    assert after.without(after.held[1]) == LoadLocks(5, (lock("b", 3),))


def test_locks_survive_json():
    load_locks = LoadLocks(7, (lock("a", 0, 1, 7, after=("b",)), lock("c", 4)))
    assert load_locks_from_json(to_json(load_locks)) == load_locks


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"number": 1, "held": [{}]}', '{"number": 1, "held": 3}', "null"])
def test_foreign_text_is_rejected(text):
    with pytest.raises(FormatError, match="newer version"):
        load_locks_from_json(text)


def test_a_person_reads_which_partitions_it_is():
    assert lock("a", 0, 1, 2, 7).partitions_text == "0 to 2, 7"
