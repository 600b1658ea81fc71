"""Records in the order of their offsets, without most of those that a newer one of their key follows.

A state is made from the newest record of each key. What is left out here need not be moved first. The memory for it
does not grow with the keys: so many records are compared at a time as there is room for.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

_MOST_BYTES = 32 * 1024 * 1024
_EMPTY_BYTES = 2048
"""What a batch takes without its rows: there may be one for each record."""
_BATCH_ROWS = 20_000
_WORTH_SHARE = 0.8
"""To compare a record costs about as much as to move a fifth of one."""


def newest_of_keys(batches: Iterable[pa.RecordBatch], most_bytes: int = _MOST_BYTES) -> Iterator[pa.RecordBatch]:
    """The newest record of each key, and maybe others, in their order.

    ``batches`` are of one partition, in its order, with a column ``key``; no key counts as one more. Up to three
    times ``most_bytes`` are held. Where most of what was compared is left, the rest is passed on as it is: there,
    keys have few records, or many lie between two of one.
    """
    rest = iter(batches)
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in rest:
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
    yield from rest


def _rows_in(batches: list[pa.RecordBatch]) -> int:
    return sum(each.num_rows for each in batches)


def _newest(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The newest record of each key."""
    table = pa.Table.from_batches(batches)
    numbers = table.column("key").combine_chunks().dictionary_encode("encode").indices.to_numpy()
    newest = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    newest[numbers] = np.arange(len(numbers))  # of an index that comes again, the last one stays
    left: list[pa.RecordBatch] = table.take(np.sort(newest)).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    return left
