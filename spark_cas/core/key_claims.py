"""Expected offsets of keys (KIP-27's other alternative): no newer record of the row's key exists.

docs/condition-key.md has the definition with examples.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import ExpectedOffsetError
from spark_cas.core.outcome import KeyConflict, Truncated
from spark_cas.core.readable import readable_key
from spark_cas.core.row_claims import explicit_claims


def check_keys(keys: pa.Array, claims: pa.Array, first_row: int) -> None:
    """Raise ExpectedOffsetError, with the row number, if a row has an expected offset but no key."""
    rows, _ = explicit_claims(claims)
    wrong = np.flatnonzero(pc.is_null(keys.take(pa.array(rows))).to_numpy(zero_copy_only=False))
    if len(wrong):
        row = first_row + int(rows[wrong[0]])
        raise ExpectedOffsetError(
            f"row {first_row + int(rows[wrong[0]])} of the partition has no key, but compare=key and an expected "
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

        The caller must have passed all records from `lowest` to ``end_offset`` to `see`.

        Args:
            unproven_below: Records below this offset may have been removed, so an expected offset below it does not
                match unless it is at the end.
            end_offset: The end offset of the partition.
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
