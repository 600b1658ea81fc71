"""A cache of other writers' keys at the end of a partition, which reads each record once while the cache is small."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_cas.core.offsets import Bounds, OffsetRange, outside
from spark_cas.log.protocol import Log

_MOST_BYTES = 16 * 1024 * 1024
"""The maximum size of the cached keys, in bytes. Above it, each chunk reads the records again."""


class Tail:
    """The keys of other writers' records, from the lowest requested offset to an end that increases."""

    def __init__(self, log: Log, partition: int) -> None:
        self._log = log
        self._partition = partition
        self._kept: list[tuple[int, pa.Array]] = []
        self._known: OffsetRange | None = None
        self._others_end = 0
        self.end_offset = 0
        """The end of the offsets read so far."""
        self.trimmed_below = 0
        """The log may have trimmed records below this offset before this object read them."""

    def free_since(self, offset: int) -> bool:
        """Return whether other writers have no record from an offset to the end read so far."""
        return self._known is not None and self._known.base_offset <= offset and self._others_end <= offset

    def others(self, since: int, bounds: Bounds, own: Sequence[tuple[int, int]]) -> Iterator[tuple[int, pa.Array]]:
        """Yield the keys of other writers' records from an offset to the end, as (first offset, keys).

        The result may also contain records before that offset.

        Args:
            since: The lowest offset.
            bounds: The start and end offset of the partition.
            own: The ranges of the job's own records, which are skipped.

        Raises:
            TrimmedError: The log trimmed records after the caller read ``bounds``; retry with new bounds.
            ValueError: The range is not within the current bounds any more; retry with new bounds.
        """
        if sum(keys.nbytes for _, keys in self._kept) > _MOST_BYTES:
            self._kept, self._known = [], None
        yield from list(self._kept)
        for unseen in self._unseen(since, bounds.end_offset):
            if unseen.base_offset < bounds.start_offset:
                self.trimmed_below = max(self.trimmed_below, min(unseen.end_offset, bounds.start_offset))
            there = unseen.intersect(bounds.range)
            for piece in outside(there, own) if there else ():
                yield from self._read(piece)
            self._known = unseen if self._known is None else _joined(self._known, unseen)
        self.end_offset = bounds.end_offset

    def _unseen(self, since: int, end_offset: int) -> list[OffsetRange]:
        """Return the ranges that are not read yet, from ``since`` to the end."""
        if self._known is None:
            return [OffsetRange(min(since, end_offset), end_offset)]
        before = [OffsetRange(since, self._known.base_offset)] if since < self._known.base_offset else []
        return [*before, OffsetRange(self._known.end_offset, max(end_offset, self._known.end_offset))]

    def _read(self, piece: OffsetRange) -> Iterator[tuple[int, pa.Array]]:
        for base, records in self._log.read(self._partition, piece, ("key",)):
            keys = records.column("key")
            self._kept.append((base, keys))
            self._others_end = max(self._others_end, base + len(keys))
            yield base, keys


def _joined(one: OffsetRange, other: OffsetRange) -> OffsetRange:
    """Return the union of two adjacent ranges."""
    return OffsetRange(min(one.base_offset, other.base_offset), max(one.end_offset, other.end_offset))
