"""Expected offsets of rows and of their keys (the alternatives of KIP-27), and the first row that does not match.

docs/condition-row.md and docs/condition-key.md have the definitions with examples.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import ExpectedOffsetError
from spark_cas.core.outcome import KeyConflict, RowConflict, Truncated
from spark_cas.core.records import RECORDS, readable_key

COLUMN = "expected_offset"

CLAIMED = RECORDS.append(pa.field(COLUMN, pa.int64()))
"""Records with the expected offset of each row. Null and -1 mean no check."""

NO_CHECK = -1

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def split_claims(rows: _Rows) -> tuple[_Rows, pa.Array | None]:
    """Split rows in `RECORDS` or `CLAIMED` into records and expected offsets, which are None if no row has one."""
    if COLUMN not in rows.schema.names:
        return rows, None
    column = rows.column(COLUMN)
    claims = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return rows.select(RECORDS.names), claims if len(explicit_claims(claims)[0]) else None


def check_rising(claims: pa.Array, first_row: int, above: int = NO_CHECK) -> int:
    """Check that expected offsets rise from row to row, and from ``above``, that of earlier rows. Return the highest.

    Raises ExpectedOffsetError. It counts from ``first_row``, the number of the first of these rows within the job's
    rows of the partition.
    """
    rows, expected = explicit_claims(claims)
    before = np.concatenate(([above], expected[:-1])) if len(rows) else expected
    wrong = np.flatnonzero(expected <= before)
    if len(wrong):
        row, result, least = (int(each[wrong[0]]) for each in (rows, expected, before))
        raise ExpectedOffsetError(
            f"row {first_row + row} of the partition expects offset {result}, and a row before it expects {least}: "
            f"offsets rise from row to row. Nothing of its chunk was appended. Number the rows of a partition in "
            f"their order; spark_cas.route sorts them by {COLUMN} unless it is given another order.",
            row=first_row + row,
            expected_offset=result,
        )
    return int(expected[-1]) if len(rows) else above


def check_claim_values(claims: pa.Array, first_row: int) -> None:
    """Raise ExpectedOffsetError, with the row number, if an expected offset is below -1.

    Null and -1 mean no check.
    """
    values = claims.fill_null(NO_CHECK).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(values < NO_CHECK)
    if len(wrong):
        raise invalid_offset(first_row + int(wrong[0]), int(values[wrong[0]]))


def invalid_offset(row: int, expected: int) -> ExpectedOffsetError:
    """Return the error for an expected offset out of range. ``row`` is the number of its row in the partition."""
    return ExpectedOffsetError(
        f"row {row} of the partition expects offset {expected}. Nothing of its chunk was appended. Give an offset "
        f"from 0 to 2^63 - 1, or null or -1 for no check.",
        row=row,
        expected_offset=expected,
    )


def check_rows(chunk: Chunk, base_offset: int, holds: Callable[[int], bool]) -> RowConflict | None:
    """Return the first row of a chunk whose expected offset does not match; None if all match.

    Row i gets the offset ``base_offset + i``. Its expected offset c requires that no other writer's record has an
    offset at or above c, where each of the i earlier rows takes one offset. So it matches exactly if the chunk itself
    could expect ``c - i``. A value equal to ``base_offset`` always matches, and a greater value never does. For lower
    values, ``holds`` decides: it returns whether the chunk could expect an offset. It must be monotonic: if it is
    true for an offset, it is true for each one from there to ``base_offset``. The function calls it as rarely as
    possible.
    """
    if chunk.claims is None:
        return None
    rows, expected = explicit_claims(chunk.claims)
    of_chunk = expected - rows
    past = np.flatnonzero(of_chunk > base_offset)
    until = int(past[0]) if len(past) else len(rows)
    # Only a row with a lower value than all earlier rows can be the first that does not match.
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
    # A matching earlier row proves that the log lost no records: then the row numbering is wrong.
    return RowConflict(first_row + row, claimed, base_offset + row, truncated=at == until and at == 0)


def lowest_claim(claims: pa.Array, base_offset: int) -> int:
    """Return the lowest offset that a chunk can expect if all of its rows match at ``base_offset``."""
    rows, expected = explicit_claims(claims)
    return min(base_offset, int((expected - rows).min(initial=base_offset)))


def explicit_claims(claims: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the rows with an expected offset, and these offsets."""
    values = claims.fill_null(NO_CHECK).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(values != NO_CHECK)
    return rows, values[rows]


def check_keys(keys: pa.Array, claims: pa.Array, first_row: int) -> None:
    """Raise ExpectedOffsetError, with the row number, if a row has an expected offset but no key."""
    rows, _ = explicit_claims(claims)
    wrong = np.flatnonzero(pc.is_null(keys.take(pa.array(rows))).to_numpy(zero_copy_only=False))
    if len(wrong):
        row = first_row + int(rows[wrong[0]])
        raise ExpectedOffsetError(
            f"row {row} of the partition has no key, but compare=key and an expected "
            f"offset. No row of its chunk was appended. Add a key, or set its expected_offset to null for no check.",
            row=row,
        )


class KeyClaims:
    """The expected offsets of one chunk's rows, and the newest record of each of their keys in the log."""

    def __init__(self, chunk: Chunk) -> None:
        rows, self._expected = explicit_claims(chunk.claims)
        keys = chunk.records.column("key").combine_chunks().take(pa.array(rows)).dictionary_encode()
        self._rows = rows + chunk.rows - chunk.records.num_rows
        self._keys, self._of_row = keys.dictionary, keys.indices.to_numpy()
        self._newest = np.full(len(self._keys), -1, dtype=np.int64)
        self.lowest = int(self._expected.min())
        """The lowest expected offset. The caller must pass all records from here on to `see`."""
        self.highest = int(self._expected.max())

    def see(self, base_offset: int, keys: pa.Array) -> None:
        """Add the keys of other writers' records at consecutive offsets from ``base_offset``."""
        result = pc.index_in(keys, value_set=self._keys)
        at = np.flatnonzero(result.is_valid().to_numpy(zero_copy_only=False))
        np.maximum.at(self._newest, result.take(pa.array(at)).to_numpy(), at + base_offset)

    def violated(self, unproven_below: int, end_offset: int) -> KeyConflict | Truncated | None:
        """Return the first row whose expected offset does not match, None if all match.

        The caller must have passed all records from `lowest` to ``end_offset``, that of the partition, to `see`.
        Records below ``unproven_below`` may have been removed, so an expected offset below it does not match unless
        it is at the end.
        """
        newest = self._newest[self._of_row]
        changed = newest >= self._expected
        unproven = (self._expected < unproven_below) & (self._expected < end_offset)
        wrong = np.flatnonzero(changed | unproven | (self._expected > end_offset))
        if not len(wrong):
            return None
        at = int(wrong[0])
        expected = int(self._expected[at])
        if expected > end_offset:
            return Truncated(expected, end_offset)
        return KeyConflict(
            row=int(self._rows[at]),
            key=readable_key(self._keys[int(self._of_row[at])].as_py()),
            expected=expected,
            actual=int(newest[at]) if changed[at] else None,
            end_offset=end_offset,
        )
