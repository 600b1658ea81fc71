"""Expected offsets of rows: the rule against a model that checks every offset, and invalid expected offsets."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import ExpectedOffsetError
from spark_cas.core.outcome import RowConflict
from spark_cas.core.records import RECORDS
from spark_cas.core.row_claims import (
    CLAIMED,
    check_claim_values,
    check_rising,
    check_rows,
    lowest_claim,
    split_claims,
)

CLAIMS = st.lists(st.none() | st.integers(-1, 25), min_size=1, max_size=8)


def chunk_of(claims: list[int | None], rows_before: int = 0) -> Chunk:
    records = pa.Table.from_pylist([{"key": b"k"}] * len(claims), RECORDS)
    each = pa.array(claims, pa.int64())
    return Chunk(records, rows_before + len(claims), "", complete=False, task="", time_ms=0, claims=each)


def model(claims: list[int | None], records: set[int], base_offset: int) -> tuple[int, int] | None:
    """Return the first row whose expected offset does not match, and that offset, by checking each offset.

    When the row is appended, the log holds the records before the chunk and the chunk's earlier rows. The writer
    knows the earlier rows, because it counted them.
    """
    for row, claim in enumerate(claims):
        if claim is None or claim == -1:
            continue
        position = base_offset + row
        if claim > position:
            return row, claim
        unseen = range(claim - row, position - row)
        if claim < row or any(offset in records for offset in unseen):
            return row, claim
    return None


@given(CLAIMS, st.sets(st.integers(0, 19)), st.integers(0, 4), st.integers(0, 5))
def test_the_rule_is_that_of_the_model(claims: list[int | None], records: set[int], gap: int, rows_before: int):
    base = max(records, default=-1) + 1 + gap

    def holds(expected: int) -> bool:
        assert expected < base, "asked for nothing that is plain"
        return expected >= 0 and not any(offset >= expected for offset in records)

    answer = check_rows(chunk_of(claims, rows_before), base, holds)
    found = model(claims, records, base)
    if found is None:
        assert answer is None
        assert lowest_claim(pa.array(claims, pa.int64()), base) == min(
            [base, *(claim - row for row, claim in enumerate(claims) if claim not in (None, -1))]
        )
    else:
        row, claim = found
        others = [each for each in claims[:row] if each not in (None, -1)]
        past = claim > base + row
        assert answer == RowConflict(rows_before + row, claim, base + row, truncated=past and not others)


@given(CLAIMS, st.integers(0, 20))
def test_on_a_dense_log_a_claim_holds_exactly_when_it_is_the_row_s_offset(claims: list[int | None], base: int):
    answer = check_rows(chunk_of(claims), base, lambda _: False)
    wrong = [row for row, claim in enumerate(claims) if claim not in (None, -1, base + row)]
    assert (answer.row if answer else None) == (wrong[0] if wrong else None)


def test_the_log_is_asked_as_little_as_can_be():
    asked = []

    def holds(expected: int) -> bool:
        asked.append(expected)
        return True

    assert check_rows(chunk_of([8, 9, 10, 11]), 8, holds) is None
    assert asked == []
    assert check_rows(chunk_of([5, 6, 10, 8]), 8, holds) is None
    assert asked == [5]


@pytest.mark.parametrize("claims", [[], [None, None], [-1, None]])
def test_where_no_row_expects_anything_nothing_is_claimed(claims: list[int | None]):
    records = pa.Table.from_pylist([{"key": b"k"}] * len(claims), RECORDS)
    rows = pa.table([*records.columns, pa.array(claims, pa.int64())], schema=CLAIMED)
    for each in [rows, *rows.to_batches()]:
        found, claimed = split_claims(each)
        assert found.schema == RECORDS
        assert claimed is None
    assert split_claims(records) == (records, None)


def test_rows_are_parted_from_what_they_expect():
    records = pa.Table.from_pylist([{"key": b"a"}, {"key": b"b"}, {"key": b"c"}], RECORDS)
    rows = pa.table([*records.columns, pa.array([None, 7, -1], pa.int64())], schema=CLAIMED)
    found, claimed = split_claims(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]))
    assert found == records
    assert claimed is not None
    assert claimed.to_pylist() == [None, 7, -1]


@given(st.lists(st.none() | st.integers(-1, 12), max_size=8), st.integers(-1, 6), st.integers(0, 50))
def test_claims_rise_from_row_to_row(claims: list[int | None], above: int, first_row: int):
    highest, wrong = above, None
    for row, claim in enumerate(claims):
        if claim is None or claim == -1 or wrong is not None:
            continue
        wrong, highest = (row, highest) if claim <= highest else (None, claim)
    if wrong is None:
        assert check_rising(pa.array(claims, pa.int64()), first_row, above) == highest
    else:
        with pytest.raises(ExpectedOffsetError) as raised:
            check_rising(pa.array(claims, pa.int64()), first_row, above)
        assert (raised.value.row, raised.value.expected_offset) == (first_row + wrong, claims[wrong])


def test_a_claim_below_no_check_is_no_offset():
    check_claim_values(pa.array([None, -1, 0, 2**63 - 1], pa.int64()), 0)
    with pytest.raises(ExpectedOffsetError, match=r"row 12 of the partition expects offset -2\."):
        check_claim_values(pa.array([None, -1, -2, -3], pa.int64()), 10)
