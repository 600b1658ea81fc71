"""Drop most records that a newer record of the same key supersedes, in offset order.

A state needs only the newest record of each key, so dropping other records early saves transfer. The memory does not
grow with the number of keys, because the function compares a limited number of bytes at a time.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

_MOST_BYTES = 32 * 1024 * 1024
_EMPTY_BYTES = 2048
"""Estimated bytes of a batch without its rows, which matter if each batch has one record."""
_BATCH_ROWS = 20_000
_WORTH_SHARE = 0.8
"""Comparing a record costs about as much as moving a fifth of a record."""


def newest_of_keys(batches: Iterable[pa.RecordBatch], most_bytes: int = _MOST_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the newest record of each key, and possibly older ones, in offset order.

    If a comparison drops few records, the function yields the remaining batches unchanged. This happens if keys have
    few records, or if records of one key are far apart.

    Args:
        batches: Records of one partition in offset order, with a column ``key``. A null key counts as one key.
        most_bytes: The size at which records are compared, in bytes. The peak memory is up to three times this.
    """
    remaining = iter(batches)
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in remaining:
        held.append(batch)
        held_bytes += batch.nbytes + _EMPTY_BYTES
        if held_bytes < most_bytes:
            continue
        compared = _rows_in(held)
        held = _newest(held)
        held_bytes = sum(each.nbytes for each in held)
        if held_bytes > most_bytes // 2:
            yield from held
            few = _rows_in(held) < _WORTH_SHARE * compared
            held, held_bytes = [], 0
            if not few:
                break
    if held:
        yield from _newest(held)
    yield from remaining


def _rows_in(batches: list[pa.RecordBatch]) -> int:
    return sum(each.num_rows for each in batches)


def _newest(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches(batches)
    numbers = table.column("key").combine_chunks().dictionary_encode("encode").indices.to_numpy()
    newest = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    newest[numbers] = np.arange(len(numbers))  # numpy keeps the last value of a repeated index
    left: list[pa.RecordBatch] = table.take(np.sort(newest)).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    return left
