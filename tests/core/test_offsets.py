from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.offsets import Bounds, OffsetRange, outside

OFFSETS = st.integers(0, 2**62)


def ranges(upto: int = 60) -> st.SearchStrategy[OffsetRange]:
    return st.tuples(st.integers(0, upto), st.integers(0, upto)).map(lambda ab: OffsetRange(*sorted(ab)))


def offsets_in(offsets: OffsetRange) -> set[int]:
    return set(range(offsets.base_offset, offsets.end_offset))


@given(ranges(), st.integers(-1, 61))
def test_a_range_holds_its_base_and_not_its_end(offsets: OffsetRange, offset: int):
    assert (offset in offsets) == (offset in offsets_in(offsets))
    assert len(offsets) == len(offsets_in(offsets))
    assert offsets.end_offset not in offsets


@given(ranges(), ranges())
def test_intersect_is_the_common_offsets(a: OffsetRange, b: OffsetRange):
    common = a.intersect(b)
    assert (offsets_in(common) if common else set()) == offsets_in(a) & offsets_in(b)
    assert common == b.intersect(a)
    assert common is None or len(common) > 0


@given(OFFSETS, st.integers(0, 10_000), st.integers(1, 50))
def test_split_pieces_follow_one_another_and_cover_the_range(base: int, length: int, pieces: int):
    whole = OffsetRange(base, base + length)
    parts = whole.split(pieces)
    assert len(parts) == min(pieces, length)
    assert all(len(part) > 0 for part in parts)
    assert [a.end_offset for a in parts[:-1]] == [b.base_offset for b in parts[1:]]
    if parts:
        assert (parts[0].base_offset, parts[-1].end_offset) == (base, base + length)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_an_empty_range_has_no_pieces():
    assert OffsetRange(7, 7).split(3) == ()


@pytest.mark.parametrize("pieces", [0, -1])
def test_split_needs_a_piece(pieces: int):
    with pytest.raises(ValueError, match="at least one piece"):
        OffsetRange(0, 5).split(pieces)


@pytest.mark.parametrize("make", [OffsetRange, Bounds])
@pytest.mark.parametrize(("low", "high"), [(-1, 0), (-2, -1), (3, 2)])
def test_negative_and_reversed_are_refused(make: Callable[[int, int], object], low: int, high: int):
    with pytest.raises(ValueError, match=f"got {low}, {high}"):
        make(low, high)


@given(ranges(), ranges())
def test_bounds_require_offsets_within_them(kept: OffsetRange, asked: OffsetRange):
    bounds = Bounds(kept.base_offset, kept.end_offset)
    assert bounds.range == kept
    if kept.base_offset <= asked.base_offset and asked.end_offset <= kept.end_offset:
        bounds.require(asked)
    else:
        with pytest.raises(ValueError, match=f"has {kept.base_offset} to {kept.end_offset}"):
            bounds.require(asked)


@given(ranges())
def test_bounds_keep_each_of_their_pieces(kept: OffsetRange):
    bounds = Bounds(kept.base_offset, kept.end_offset)
    for part in bounds.range.split(4):
        bounds.require(part)


@given(st.tuples(*[st.integers(0, 12)] * 2), st.lists(st.integers(0, 12), max_size=6))
def test_gaps_outside_of_ranges(ends, cuts):
    cuts = sorted(cuts)
    taken = list(zip(cuts[::2], cuts[1::2], strict=False))
    offsets = OffsetRange(min(ends), max(ends))
    parts = list(outside(offsets, taken))
    assert all(len(part) for part in parts)
    at = [offset for part in parts for offset in range(part.base_offset, part.end_offset)]
    assert at == [
        offset
        for offset in range(offsets.base_offset, offsets.end_offset)
        if not any(base <= offset < end for base, end in taken)
    ]
