"""Convert Arrow records to the arrays of C structs that librdkafka reads. The structs point into Arrow's buffers."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.records import headers_of, nulls_of
from spark_cas.log.kafka.accelerators import librdkafka as c

_MESSAGE = np.dtype(c.Message)
_VU = np.dtype(c.VU)

_EMPTY = pa.py_buffer(b"\0")
"""The address of an empty value. Address 0 means null."""

_VALUE, _KEY, _TIMESTAMP, _FIXED = 3, 4, 5, 6
"""Positions in the arguments of a record. Earlier ones are equal for all records, and headers start at the last."""

_UNITS = 5_000
"""How many arguments are prepared at a time, 72 bytes each."""


def messages_of(records: pa.Table, tag: int) -> np.ndarray:
    """Return an rd_kafka_message_t for each record, with its key and value, and a tag for its delivery report."""
    messages = np.zeros(records.num_rows, dtype=_MESSAGE)
    messages["private"] = tag
    done = 0
    for batch in records.to_batches():
        part = messages[done : done + batch.num_rows]
        part["payload"], part["len"] = _places(batch.column("value"))
        part["key"], part["key_len"] = _places(batch.column("key"))
        done += batch.num_rows
    return messages


def arguments_of(batch: pa.RecordBatch, topic: int, partition: int, tag: int) -> Iterator[tuple[range, list[int]]]:
    """Yield the arguments of rd_kafka_produceva for some records at a time: the address of each, and its length.

    All records of the batch must have a timestamp. The arguments, an rd_kafka_vu_t each, are in one array that is
    reused for the next records. So the array stays in the processor's cache, and values that are equal for all
    records are written once.
    """
    headers = headers_of(batch.column("headers"))
    keys, key_sizes = _places(batch.column("key"))
    values, value_sizes = _places(batch.column("value"))
    times = batch.column("timestamp").cast(pa.int64()).to_numpy()
    entries = headers.keys.dictionary_encode()
    # Each name ends with a NUL, because the library expects C strings.
    names = pc.binary_join_element_wise(entries.dictionary.cast(pa.binary()), b"\0", b"")
    header_names = _places(names)[0][entries.indices.to_numpy()]
    header_values, header_sizes = _places(headers.values)

    width = _FIXED + int(headers.counts.max(initial=0))
    at_once = max(1, _UNITS // width)
    units = np.zeros((at_once, width), dtype=_VU)
    units["vtype"][:, :_FIXED] = c.V_RKT, c.V_PARTITION, c.V_OPAQUE, c.V_VALUE, c.V_KEY, c.V_TIMESTAMP
    units["vtype"][:, _FIXED:] = c.V_HEADER
    units["first"][:, :_VALUE] = topic, partition, tag
    addresses = range(units.ctypes.data, units.ctypes.data + units.nbytes, units.strides[0])
    counts = (headers.counts + _FIXED).tolist()
    upto = np.concatenate(([0], np.cumsum(headers.counts)))
    # The position of each header, as if the array had room for all records of the batch.
    before = np.arange(len(counts)) * width + _FIXED - upto[:-1]
    header_places = np.arange(upto[-1]) + np.repeat(before, headers.counts)

    for begin in range(0, len(counts), at_once):
        rows = slice(begin, min(begin + at_once, len(counts)))
        some = units[: rows.stop - begin]
        some["first"][:, _VALUE], some["second"][:, _VALUE] = values[rows], value_sizes[rows]
        some["first"][:, _KEY], some["second"][:, _KEY] = keys[rows], key_sizes[rows]
        some["first"][:, _TIMESTAMP] = times[rows]
        theirs = slice(upto[begin], upto[rows.stop])
        flat, at = units.reshape(-1), header_places[theirs] - begin * width
        flat["first"][at], flat["second"][at], flat["third"][at] = (
            header_names[theirs],
            header_values[theirs],
            header_sizes[theirs],
        )
        yield addresses[: len(some)], counts[rows]


def _places(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the address and the length of each value of a binary column, with address 0 for null."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    upto = np.frombuffer(offsets, dtype=np.int32, count=len(column) + 1, offset=4 * column.offset).astype(np.int64)
    begin = upto[:-1] + (data.address if data is not None and data.size else _EMPTY.address)
    lengths = np.diff(upto)
    if column.null_count:
        nulls = nulls_of(column)
        begin[nulls] = lengths[nulls] = 0
    return begin, lengths
