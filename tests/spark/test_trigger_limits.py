"""How much a micro-batch takes, as tables and as a law; no log and no JVM."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.options.trigger_limits import TriggerLimits, share


@pytest.mark.parametrize(
    ("sizes", "limit", "taken"),
    [
        ((10, 4), 20, (10, 4)),
        ((10, 4), 14, (10, 4)),
        ((10, 4), 7, (5, 2)),
        ((10, 0, 4), 7, (5, 0, 2)),
        ((1000, 1, 1), 10, (8, 1, 1)),
        ((5, 9, 7), 2, (0, 1, 1)),
        ((5, 5), 1, (1, 0)),
        ((3, 3, 3), 4, (2, 1, 1)),
        ((2**62, 1), 2**61, (2**61 - 1, 1)),
        ((0, 0), 3, (0, 0)),
        ((), 3, ()),
    ],
)
def test_what_is_taken(sizes, limit, taken):
    assert tuple(share(dict(enumerate(sizes)), limit).values()) == taken


@given(st.lists(st.integers(0, 10**6), max_size=8), st.integers(1, 10**6))
def test_the_limit_is_used_up_and_never_exceeded_and_nothing_starves(sizes, limit):
    taken = share(dict(enumerate(sizes)), limit)
    assert sum(taken.values()) == min(limit, sum(sizes))
    assert all(0 <= taken[at] <= size for at, size in enumerate(sizes))
    if limit >= sum(size > 0 for size in sizes):
        assert all(taken[at] for at, size in enumerate(sizes) if size)


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
