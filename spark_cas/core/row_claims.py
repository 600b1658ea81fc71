"""What single rows expect of the log (KIP-27's offset on each record), and the first of them that does not hold.

docs/conditions.md has the definition with examples.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import ClaimError
from spark_cas.core.outcome import RowConflict
from spark_cas.core.records import RECORDS

COLUMN = "expected_offset"

CLAIMED = RECORDS.append(pa.field(COLUMN, pa.int64()))
"""Rows on their way to the log: records, and what each expects. Null and -1 ask for no check."""

NO_CHECK = -1

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def split_claims(rows: _Rows) -> tuple[_Rows, pa.Array | None]:
    """The records of rows in `RECORDS` or `CLAIMED`, and what each row expects: None when none expects anything."""
    if COLUMN not in rows.schema.names:
        return rows, None
    column = rows.column(COLUMN)
    claims = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return rows.select(RECORDS.names), claims if len(given_claims(claims)[0]) else None


def check_rising(claims: pa.Array, first_row: int, above: int = NO_CHECK) -> int:
    """The highest of some rows' claims, which rise from row to row, beginning ``above`` those of the rows before.

    ``first_row`` is the first of them, counted in the job's partition. Raises ClaimError naming the row otherwise.
    """
    rows, expected = given_claims(claims)
    before = np.concatenate(([above], expected[:-1])) if len(rows) else expected
    wrong = np.flatnonzero(expected <= before)
    if len(wrong):
        row, found, least = (int(each[wrong[0]]) for each in (rows, expected, before))
        raise ClaimError(
            f"row {first_row + row} of the partition expects offset {found}, and a row before it expects {least}: "
            f"offsets rise from row to row. Nothing of its chunk was appended. Number the rows of a partition in "
            f"their order; spark_cas.route sorts them by {COLUMN} unless it is given another order."
        )
    return int(expected[-1]) if len(rows) else above


def check_claim_values(claims: pa.Array, first_row: int) -> None:
    """ClaimError, naming the row, for a claim that is no offset from 0 on; null and -1 ask for no check."""
    values = claims.fill_null(NO_CHECK).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(values < NO_CHECK)
    if len(wrong):
        raise ClaimError(
            f"row {first_row + int(wrong[0])} of the partition expects offset {int(values[wrong[0]])}. Nothing of "
            f"its chunk was appended. Give an offset from 0 on, or null or -1 for no check."
        )


def check_rows(chunk: Chunk, base_offset: int, holds: Callable[[int], bool]) -> RowConflict | None:
    """The first row of a chunk whose claim does not hold when the chunk is appended at ``base_offset``; None if none.

    Row i gets ``base_offset + i``. Its claim c says that nobody else's record lies at or behind c, where each of the
    i rows before it took one offset: so it holds exactly when the chunk itself may expect ``c - i``. That is so for
    ``base_offset``, for nothing above, and below for what ``holds``, which is asked as little as can be: where it
    says yes to an offset, it says so to each from there up to ``base_offset``.
    """
    if chunk.claims is None:
        return None
    rows, expected = given_claims(chunk.claims)
    of_chunk = expected - rows
    past = np.flatnonzero(of_chunk > base_offset)
    until = int(past[0]) if len(past) else len(rows)
    # Only a claim that asks for more than all before it can be the first that does not hold.
    least = np.minimum.accumulate(of_chunk[:until]) if until else of_chunk[:0]
    steps = np.flatnonzero(np.diff(least, prepend=base_offset) < 0)
    if len(steps) and not holds(int(least[steps[-1]])):
        at = int(steps[bisect_left(steps, 1, key=lambda step: int(not holds(int(least[step]))))])
    elif len(past):
        at = until
    else:
        return None
    first_row = chunk.rows - chunk.records.num_rows
    row, claimed = int(rows[at]), int(expected[at])
    # A claim before it that holds proves that the log has all that was seen: then the numbering is wrong.
    return RowConflict(first_row + row, claimed, base_offset + row, truncated=at == until and at == 0)


def lowest_claim(claims: pa.Array, base_offset: int) -> int:
    """The lowest offset that rows, all of whose claims hold at ``base_offset``, let their chunk expect."""
    rows, expected = given_claims(claims)
    return min(base_offset, int((expected - rows).min(initial=base_offset)))


def given_claims(claims: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Which rows expect something, and what."""
    values = claims.fill_null(NO_CHECK).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(values != NO_CHECK)
    return rows, values[rows]
