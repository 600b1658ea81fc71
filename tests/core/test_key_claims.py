"""Expected offsets of keys: the rule against a model that checks every record, and rows without a key."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import ExpectedOffsetError
from spark_cas.core.offsets import OffsetRange, outside
from spark_cas.core.outcome import KeyConflict, Truncated
from spark_cas.core.records import RECORDS
from spark_cas.core.row_claims import KeyClaims, check_keys

KEYS = st.sampled_from(["a", "b", "c", None])
ROWS = st.lists(st.tuples(KEYS, st.none() | st.integers(-1, 14)), min_size=1, max_size=6)


def chunk_of(rows: list[tuple[str | None, int | None]], rows_before: int = 0) -> Chunk:
    records = pa.Table.from_pylist([{"key": key and key.encode()} for key, _ in rows], RECORDS)
    claims = pa.array([claim for _, claim in rows], pa.int64())
    return Chunk(records, rows_before + len(rows), "", complete=False, task="", time_ms=0, claims=claims)


def seen_in(chunk: Chunk, log: list[str | None], own: list[tuple[int, int]], cut: int) -> KeyClaims:
    """Return the claims after they have read the log from the lowest expected offset on, in two parts."""
    claims = KeyClaims(chunk)
    cut = max(cut, claims.lowest)
    for part in (OffsetRange(claims.lowest, cut), OffsetRange(cut, max(cut, len(log)))):
        for base, end in ((each.base_offset, each.end_offset) for each in outside(part, own)):
            claims.see(base, pa.array([key and key.encode() for key in log[base:end]], pa.binary()))
    return claims


@given(ROWS, st.lists(KEYS, max_size=12), st.integers(0, 12), st.integers(0, 6), st.tuples(*[st.integers(0, 12)] * 2))
def test_the_rule_is_that_of_the_model(rows, log, cut, unproven_below, own):
    rows = [(key, claim if key else None) for key, claim in rows]
    if all(claim in (None, -1) for _, claim in rows):
        return
    own_range = (min(own), max(own))
    expected: KeyConflict | Truncated | None = None
    for number, (key, claim) in enumerate(rows):
        if claim in (None, -1) or expected is not None:
            continue
        of_key = [at for at, found in enumerate(log) if found == key and not own_range[0] <= at < own_range[1]]
        if claim > len(log):
            expected = Truncated(claim, len(log))
        elif any(at >= claim for at in of_key):
            expected = KeyConflict(7 + number, key, claim, of_key[-1], len(log))
        elif claim < min(unproven_below, len(log)):
            expected = KeyConflict(7 + number, key, claim, None, len(log))
    claims = seen_in(chunk_of(rows, 7), log, [own_range], cut)
    assert claims.violated(unproven_below, len(log)) == expected


def test_a_long_key_is_cut_and_one_that_is_no_text_can_be_read():
    records = pa.Table.from_pylist([{"key": b"\xff\n" + b"x" * 200}], RECORDS)
    chunk = Chunk(records, 1, "", complete=False, task="", time_ms=0, claims=pa.array([0]))
    claims = KeyClaims(chunk)
    claims.see(0, records.column("key").combine_chunks())
    refusal = claims.violated(0, 1)
    assert isinstance(refusal, KeyConflict)
    assert refusal.key == "\\xff\\n" + "x" * 54 + "…"


def test_row_with_an_expected_offset_but_no_key_is_named():
    keys = pa.array([b"a", None, None], pa.binary())
    check_keys(keys, pa.array([0, None, -1]), 0)
    with pytest.raises(ExpectedOffsetError, match=r"^\[BAD_EXPECTED_OFFSET\] row 12 of the partition has no key"):
        check_keys(keys, pa.array([0, None, 5]), 10)
