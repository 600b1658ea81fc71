"""What a writer has seen of others' records at the end of a partition: read once, while that is little to keep."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_cas.core.offsets import Bounds, OffsetRange, outside
from spark_cas.log.protocol import Log

_MOST_BYTES = 16 * 1024 * 1024
"""Of others' keys that are kept in memory; more is read again for each chunk."""


class Tail:
    """The keys of others' records, from the lowest offset that was asked for up to an end that moves on."""

    def __init__(self, log: Log, partition: int) -> None:
        self._log = log
        self._partition = partition
        self._kept: list[tuple[int, pa.Array]] = []
        self._seen: OffsetRange | None = None
        self._others_end = 0
        self.end_offset = 0
        """Up to where it was seen."""
        self.trimmed_below = 0
        """What lay below it may have been trimmed before it was seen."""

    def free_since(self, offset: int) -> bool:
        """Whether no record of others lies from an offset up to the end that was seen."""
        return self._seen is not None and self._seen.base_offset <= offset and self._others_end <= offset

    def others(self, since: int, bounds: Bounds, own: Sequence[tuple[int, int]]) -> Iterator[tuple[int, pa.Array]]:
        """Yield the keys of others' records from an offset, or before it, up to the end, as (first offset, keys).

        Those within ``own`` are the job's. Raises TrimmedError or ValueError when what is to be read was trimmed
        after the bounds were found: to be asked again.
        """
        if sum(keys.nbytes for _, keys in self._kept) > _MOST_BYTES:
            self._kept, self._seen = [], None
        yield from list(self._kept)
        for unseen in self._unseen(since, bounds.end_offset):
            if unseen.base_offset < bounds.start_offset:
                self.trimmed_below = max(self.trimmed_below, min(unseen.end_offset, bounds.start_offset))
            there = unseen.intersect(bounds.range)
            for piece in outside(there, own) if there else ():
                yield from self._read(piece)
            self._seen = unseen if self._seen is None else _joined(self._seen, unseen)
        self.end_offset = bounds.end_offset

    def _unseen(self, since: int, end_offset: int) -> list[OffsetRange]:
        """What is to be read in order to have seen all from ``since`` on."""
        if self._seen is None:
            return [OffsetRange(min(since, end_offset), end_offset)]
        before = [OffsetRange(since, self._seen.base_offset)] if since < self._seen.base_offset else []
        return [*before, OffsetRange(self._seen.end_offset, max(end_offset, self._seen.end_offset))]

    def _read(self, piece: OffsetRange) -> Iterator[tuple[int, pa.Array]]:
        for base, records in self._log.read(self._partition, piece, ("key",)):
            keys = records.column("key")
            self._kept.append((base, keys))
            self._others_end = max(self._others_end, base + len(keys))
            yield base, keys


def _joined(one: OffsetRange, other: OffsetRange) -> OffsetRange:
    """Both of two ranges that adjoin."""
    return OffsetRange(min(one.base_offset, other.base_offset), max(one.end_offset, other.end_offset))
