"""The size of a micro-batch, as tables and as properties; no log and no JVM."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.options.read_range import TriggerLimits, share


@pytest.mark.parametrize(
    ("sizes", "limit", "position", "taken"),
    [
        ((10, 4), 20, 0, (10, 4)),
        ((10, 4), 14, 1, (10, 4)),
        ((10, 4), 7, 1, (5, 2)),
        ((10, 0, 4), 7, 2, (5, 0, 2)),
        ((1000, 1, 1), 10, 0, (8, 1, 1)),
        ((3, 3, 3), 4, 0, (2, 1, 1)),
        ((2**62, 1), 2**61, 0, (2**61 - 1, 1)),
        ((0, 0), 3, 5, (0, 0)),
        ((), 3, 5, ()),
        ((5, 9, 7), 2, 0, (1, 1, 0)),
        ((5, 9, 7), 2, 2, (1, 0, 1)),
        ((5, 9, 7), 2, 31, (0, 1, 1)),
        ((5, 0, 7), 1, 1, (0, 0, 1)),
        ((5, 5), 1, 3, (0, 1)),
    ],
)
def test_offsets_of_a_batch(sizes, limit, position, taken):
    assert tuple(share(dict(enumerate(sizes)), limit, position).values()) == taken


@given(st.lists(st.integers(0, 10**6), max_size=8), st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_batch_uses_the_limit_and_never_exceeds_it(sizes, limit, position):
    taken = share(dict(enumerate(sizes)), limit, position)
    assert sum(taken.values()) == min(limit, sum(sizes))
    assert all(0 <= taken[at] <= size for at, size in enumerate(sizes))
    if limit >= sum(size > 0 for size in sizes):
        assert all(taken[at] for at, size in enumerate(sizes) if size)


@given(
    st.integers(1, 8).flatmap(
        lambda partitions: st.lists(
            st.lists(st.integers(0, 3), min_size=partitions, max_size=partitions), min_size=1, max_size=40
        )
    ),
    st.integers(1, 9),
    st.integers(0, 100),
)
def test_no_partition_starves(appended, limit, begin):
    """Each partition with new offsets gets some within one round, regardless of appends to the others."""
    partitions = len(appended[0])
    read, end, waited = [begin] * partitions, [begin] * partitions, [0] * partitions
    for each in appended:
        end = [offset + more for offset, more in zip(end, each, strict=True)]
        sizes = {at: end[at] - read[at] for at in range(partitions)}
        taken = share(sizes, limit, sum(read))
        for at in range(partitions):
            waited[at] = waited[at] + 1 if sizes[at] and not taken[at] else 0
            read[at] += taken[at]
        assert max(waited) < -(-partitions // limit)


@pytest.mark.parametrize(
    ("least", "delay_ms", "offsets", "since_ms", "waits"),
    [
        (None, 1000, 0, 0, False),
        (5, 1000, 4, 0, True),
        (5, 1000, 4, 999, True),
        (5, 1000, 4, 1000, False),
        (5, 1000, 5, 0, False),
        (5, 1000, 4, math.inf, False),
        (5, 0, 4, 0, False),
    ],
)
def test_few_offsets_wait_for_more(least, delay_ms, offsets, since_ms, waits):
    assert TriggerLimits(None, least, delay_ms).waits(offsets, since_ms) is waits
