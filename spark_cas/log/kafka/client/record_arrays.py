"""Records in Arrow's buffers as the arrays of structs that librdkafka takes. They point into the buffers."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.log.kafka.client import librdkafka as c

_MESSAGE = np.dtype(c.Message)
_VU = np.dtype(c.VU)

_EMPTY = pa.py_buffer(b"\0")
"""Where a value without bytes is: at null there is none."""

_VALUE, _KEY, _TIMESTAMP, _FIXED = 4, 5, 6, 7
"""Places among the arguments of a record: the first four are alike, and from the last on there are its headers."""


def messages_of(records: pa.Table, tag: int) -> np.ndarray:
    """An rd_kafka_message_t for each record: its key and value, and the tag that its report carries."""
    messages = np.zeros(records.num_rows, dtype=_MESSAGE)
    messages["private"] = tag
    done = 0
    for batch in records.to_batches():
        part = messages[done : done + batch.num_rows]
        part["payload"], part["len"] = _places(batch.column("value"))
        part["key"], part["key_len"] = _places(batch.column("key"))
        done += batch.num_rows
    return messages


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of rd_kafka_produceva for each record, in an array of rd_kafka_vu_t."""

    addresses: range
    """Where each record's begin."""
    counts: list[int]
    """How many it has."""
    held: tuple[object, ...]
    """What they lie in and point to."""


def arguments_of(batch: pa.RecordBatch, topic: int, partition: int, tag: int) -> Arguments:
    """The arguments for each record of a batch in `RECORDS`, whose times are all given, and its report's tag."""
    headers = batch.column("headers")
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    alike = np.zeros(_FIXED + int(counts.max(initial=0)), dtype=_VU)
    alike["vtype"][:_FIXED] = c.V_RKT, c.V_PARTITION, c.V_MSGFLAGS, c.V_OPAQUE, c.V_VALUE, c.V_KEY, c.V_TIMESTAMP
    alike["vtype"][_FIXED:] = c.V_HEADER
    alike["first"][:_VALUE] = topic, partition, c.COPY, tag
    units = np.tile(alike, (batch.num_rows, 1))
    units["first"][:, _VALUE], units["second"][:, _VALUE] = _places(batch.column("value"))
    units["first"][:, _KEY], units["second"][:, _KEY] = _places(batch.column("key"))
    units["first"][:, _TIMESTAMP] = batch.column("timestamp").cast(pa.int64()).to_numpy()
    held = _put_headers(units[:, _FIXED:], headers, counts) if counts.any() else ()
    begin, size = units.ctypes.data, units.strides[0]
    addresses = range(begin, begin + size * batch.num_rows, size)
    return Arguments(addresses, (counts + _FIXED).tolist(), (units, batch, *held))


def _put_headers(units: np.ndarray, headers: pa.Array, counts: np.ndarray) -> tuple[object, ...]:
    """Fill in the headers of each record, in order; returns what they point to."""
    entries = headers.flatten()
    keys = pc.dictionary_encode(entries.field("key"))
    names = [name.as_py().encode() + b"\0" for name in keys.dictionary]
    places = np.array([np.frombuffer(name, dtype=np.uint8).ctypes.data for name in names], dtype=np.int64)
    name_of = places[keys.indices.to_numpy()]
    value_of, size_of = _places(entries.field("value"))
    first = np.cumsum(counts) - counts
    for number in range(units.shape[1]):
        has = np.flatnonzero(counts > number)
        entry = first[has] + number
        units["first"][has, number] = name_of[entry]
        units["second"][has, number] = value_of[entry]
        units["third"][has, number] = size_of[entry]
    return names, entries


def _places(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The address and the length of each value of a binary column; address 0 for null."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    upto = np.frombuffer(offsets, dtype=np.int32, count=len(column) + 1, offset=4 * column.offset).astype(np.int64)
    begin = upto[:-1] + (data.address if data is not None and data.size else _EMPTY.address)
    lengths = np.diff(upto)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        begin, lengths = np.where(valid, begin, 0), np.where(valid, lengths, 0)
    return begin, lengths
