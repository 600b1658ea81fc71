"""Rows are placed in the same partitions as by Kafka's own clients."""

import ctypes
import struct
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer, cimpl
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.partitioner import (
    Partitioner,
    crc32,
    known_partitioner,
    murmur2,
    partition_of,
    partition_of_key,
)
from spark_cas.core.records import HEADERS, RECORDS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LIBRDKAFKA_NAMES: dict[Partitioner, str] = {"murmur2": "murmur2", "crc32": "consistent"}
PARTITIONERS = list(LIBRDKAFKA_NAMES)

partition_counts = st.integers(1, 100) | st.integers(1, 2**31 - 1)
keys = st.binary(max_size=20)
texts = st.text(max_size=8)
maybe_bytes = st.none() | st.binary(max_size=9)
headers = st.none() | st.lists(st.tuples(st.text(max_size=2), maybe_bytes), max_size=3)
times = st.none() | st.integers(0, 2**40).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
contents = st.tuples(maybe_bytes, headers, times)


def java_murmur2(key: bytes) -> int:
    """Compute ``Utils.murmur2`` of Kafka, byte by byte."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        k = word * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail := key[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - 2**32 if h >> 31 else h


def expected_partition(key: bytes, partitions: int, partitioner: Partitioner) -> int:
    hashed = java_murmur2(key) & 0x7FFFFFFF if partitioner == "murmur2" else zlib.crc32(key)
    return hashed % partitions


def records_of(record_keys: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"key": record_keys})


def partitions_of(record_keys: pa.Array, partitions: int, partitioner: Partitioner) -> list[int]:
    found = partition_of(records_of(record_keys), partitions, partitioner)
    assert found.type == pa.int32()
    assert found.null_count == 0
    return list(found.to_pylist())


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(key, expected):
    """These are the vectors of Kafka's own ``UtilsTest.testMurmur2``."""
    assert murmur2(pa.array([key])).tolist() == [expected]
    assert java_murmur2(key) == expected


def test_crc32_is_the_common_one():
    """The check value of CRC-32, and librdkafka's value for an empty key."""
    assert crc32(pa.array([b"123456789", b""])).tolist() == [0xCBF43926, 0]


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"", 0), (b"123456789", 5), (b"N14228", 2), (b"foobar", 6), (b"a-little-bit-long-string", 3)],
)
def test_the_crc32_partition_of_known_keys(key, expected):
    """confluent-kafka's producer with ``partitioner=consistent`` uses these partitions of a topic with 7."""
    assert partitions_of(pa.array([key]), 7, "crc32") == [expected]
    assert partition_of_key(key, 7, "crc32") == expected


@pytest.mark.parametrize("name", ["", "random", None, 3])
def test_an_unknown_recorded_partitioner_is_rejected(name):
    with pytest.raises(ValueError, match="murmur2"):
        known_partitioner(name)


@given(st.lists(st.none() | keys), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_hashes_of_bytes(some, kind):
    assert murmur2(pa.array(some, kind)).tolist() == [java_murmur2(key or b"") for key in some]
    assert crc32(pa.array(some, kind)).tolist() == [zlib.crc32(key or b"") for key in some]


@given(st.lists(st.none() | texts), st.sampled_from([pa.string(), pa.large_string()]))
def test_hashes_of_text_are_those_of_its_utf8(some, kind):
    utf8 = [(text or "").encode() for text in some]
    assert murmur2(pa.array(some, kind)).tolist() == [java_murmur2(key) for key in utf8]
    assert crc32(pa.array(some, kind)).tolist() == [zlib.crc32(key) for key in utf8]


@given(st.lists(keys), st.integers(0, 5), st.integers(0, 20))
def test_slices(some, start, length):
    column = pa.array(some, pa.binary()).slice(start, length)
    for hashed, reference in ((murmur2, java_murmur2), (crc32, zlib.crc32)):
        assert hashed(column).tolist() == [reference(key) for key in some[start : start + length]]
    assert murmur2(column).dtype == np.int32
    assert crc32(column).dtype == np.uint32


@pytest.mark.parametrize("count", [1, 64, 65, 500])
@pytest.mark.parametrize("longest", [3, 40, 1000])
def test_many_keys_of_mixed_length(count, longest):
    """Cover arrays with many keys that are hashed in common steps, with few, and with both."""
    rng = np.random.default_rng(count * longest)
    some = [rng.bytes(n) for n in rng.integers(0, longest, count, endpoint=True)]
    assert murmur2(pa.array(some)).tolist() == [java_murmur2(key) for key in some]
    assert crc32(pa.array(some)).tolist() == [zlib.crc32(key) for key in some]


@pytest.mark.parametrize(("hashed", "reference"), [(murmur2, java_murmur2), (crc32, zlib.crc32)])
def test_lengths_that_differ_by_more_than_sixteen_bits(hashed, reference):
    some = [bytes(2**16 + 2), *[b"", b"1234"] * 200]
    assert hashed(pa.array(some)).tolist() == [reference(key) for key in some]


@pytest.mark.parametrize(("hashed", "reference"), [(murmur2, java_murmur2), (crc32, zlib.crc32)])
def test_one_huge_key_costs_only_its_own_bytes(hashed, reference):
    some = [b"%010d" % i for i in range(10_000)]
    some[5_000] = np.random.default_rng(1).bytes(1_000_000)
    column = pa.array(some)
    before = time.process_time()
    found = hashed(column)
    # This takes about 30 ms. A step per word over all keys, or keys padded to one length, take many seconds or
    # gigabytes.
    assert time.process_time() - before < 1
    assert found.tolist() == [reference(key) for key in some]


@pytest.mark.parametrize("hashed", [murmur2, crc32])
@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array([b"12"], pa.binary(2)), pa.nulls(2)])
def test_other_types_are_refused(hashed, column):
    with pytest.raises(TypeError, match="expected binary"):
        hashed(column)


@given(st.lists(keys), partition_counts, st.sampled_from(PARTITIONERS))
def test_the_partition_is_the_positive_hash_modulo_the_count(some, partitions, partitioner):
    found = partitions_of(pa.array(some, pa.binary()), partitions, partitioner)
    assert found == [expected_partition(key, partitions, partitioner) for key in some]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@given(some=st.lists(keys), partitions=partition_counts)
def test_librdkafka_computes_the_same(partitioner, some, partitions):
    """Compare with librdkafka's own partitioner functions. Both sides treat an empty key as a key."""
    native = librdkafka_partitioner(partitioner)
    found = partitions_of(pa.array(some, pa.binary()), partitions, partitioner)
    assert found == [native(key, partitions) for key in some]


def librdkafka_partitioner(partitioner: Partitioner) -> Callable[[bytes, int], int]:
    # The extension module is linked to librdkafka, wherever the wheel stores it, so its symbols are found through it.
    library = ctypes.CDLL(cimpl.__file__)
    native = library[f"rd_kafka_msg_partitioner_{LIBRDKAFKA_NAMES[partitioner]}"]
    pointer = ctypes.c_void_p
    native.argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, pointer, pointer]
    native.restype = ctypes.c_int32
    return lambda key, partitions: native(None, key, len(key), partitions, None, None)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_producer_delivers_to_the_same(partitioner):
    """Use a real librdkafka producer with its built-in mock broker, which listens on the loopback interface only."""
    rng = np.random.default_rng(7)
    some = [b"", b"21", b"foobar", *(rng.bytes(n) for n in rng.integers(1, 40, 2_000))]
    delivered: list[int | None] = [None] * len(some)

    def delivery(index: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            assert error is None
            delivered[index] = message.partition()

        return report

    producer = Producer({"test.mock.num.brokers": 1, "partitioner": LIBRDKAFKA_NAMES[partitioner], "log_level": 0})
    try:
        metadata = producer.list_topics("orders", timeout=10)
        assert {broker.host for broker in metadata.brokers.values()} == {"127.0.0.1"}
        partitions = len(metadata.topics["orders"].partitions)
        assert partitions > 1
        for index, key in enumerate(some):
            producer.produce("orders", b"", key, on_delivery=delivery(index))
        assert producer.flush(20) == 0
    finally:
        producer.close()
    assert partitions_of(pa.array(some), partitions, partitioner) == delivered
    assert set(delivered) == set(range(partitions))


def batch(rows: list[tuple]) -> pa.RecordBatch:
    """Return a batch of rows of key, value, headers and timestamp."""
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORDS, strict=True)]
    return pa.record_batch(arrays, schema=RECORDS)


def content(value: bytes | None, row_headers: list[tuple] | None, at: datetime | None) -> bytes:
    """Return the bytes that replace the key of a row without one, as ``partition_of`` defines them."""

    def framed(part: str | bytes | None) -> bytes:
        part = part.encode() if isinstance(part, str) else part
        return struct.pack("<q", -1 if part is None else len(part)) + (part or b"")

    milliseconds = -(2**63) if at is None else (at - EPOCH) // timedelta(milliseconds=1)
    fields = [framed(value), struct.pack("<q", milliseconds)]
    fields += [framed(part) for header in row_headers or [] for part in header]
    return b"".join(fields)


@given(
    st.lists(st.tuples(st.none() | keys, maybe_bytes, headers, times)),
    partition_counts,
    st.sampled_from(PARTITIONERS),
)
def test_rows_without_a_key_go_by_their_content(rows, partitions, partitioner):
    expected = [
        expected_partition(content(*rest) if key is None else key, partitions, partitioner) for key, *rest in rows
    ]
    assert partition_of(batch(rows), partitions, partitioner).to_pylist() == expected


@given(st.lists(contents, max_size=6), st.integers(0, 6), st.sampled_from(PARTITIONERS))
def test_rows_without_a_key_do_not_see_batch_boundaries(some, cut, partitioner):
    whole = batch([(None, *row) for row in some])
    pieces = [whole.slice(0, cut), whole.slice(cut)]
    found = [partition for piece in pieces for partition in partition_of(piece, 1000, partitioner).to_pylist()]
    assert found == partition_of(whole, 1000, partitioner).to_pylist()


def test_every_part_of_the_content_counts():
    rows = [
        (None, None, None, None),
        (None, b"", None, None),
        (None, b"v", None, None),
        (None, b"v", None, EPOCH),
        (None, b"v", [("h", None)], None),
        (None, b"v", [("h", b"")], None),
        (None, b"v", [("", b"h")], None),
        (None, b"v", [("h", b""), ("h", b"")], None),
    ]
    assert len(set(partition_of(batch(rows), 2**31 - 1).to_pylist())) == len(rows)


def test_missing_columns_are_as_null():
    record_keys = pa.array([None, b"k", None], pa.binary())
    bare = partition_of(records_of(record_keys), 1000)
    assert bare == partition_of(batch([(key.as_py(), None, None, None) for key in record_keys]), 1000)
    values = pa.record_batch({"value": pa.array([b"v", b"v", b"w"]), "key": record_keys})
    full: list[tuple] = [(None, b"v", None, None), (b"k", b"v", None, None), (None, b"w", [], None)]
    assert partition_of(values, 1000) == partition_of(batch(full), 1000)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_garbage_under_null_keys_does_not_matter(partitioner):
    filled = pa.array([b"garbage", b"k1", b"more garbage", b"k2"])
    validity = pa.array([False, True, False, True]).buffers()[1]
    dirty = pa.Array.from_buffers(pa.binary(), 4, [validity, *filled.buffers()[1:]])
    clean = pa.array([None, b"k1", None, b"k2"])
    for start in range(4):
        found = partitions_of(dirty.slice(start), 1000, partitioner)
        assert found == partitions_of(clean.slice(start), 1000, partitioner)
    assert murmur2(dirty).tolist() == murmur2(clean).tolist()


@pytest.mark.parametrize("partitions", [-1, 0, 2**31])
def test_a_log_has_partitions(partitions):
    with pytest.raises(ValueError, match="partitions"):
        partition_of(records_of(pa.array([b"k"])), partitions)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (pa.record_batch({"value": pa.array([b"v"])}), KeyError),
        (records_of(pa.array([1])), TypeError),
        (pa.record_batch({"key": pa.array([None], pa.binary()), "value": pa.array(["text"])}), TypeError),
        (pa.record_batch({"key": pa.array([None], pa.binary()), "timestamp": pa.array([1])}), TypeError),
        (
            pa.record_batch({"key": pa.array([None], pa.binary()), "headers": pa.nulls(1, pa.list_(HEADERS))}),
            TypeError,
        ),
    ],
)
def test_records_of_another_form_are_refused(records, error):
    with pytest.raises(error):
        partition_of(records, 4)


@given(st.binary(max_size=40), partition_counts, st.sampled_from(PARTITIONERS))
def test_single_key_has_the_partition_of_a_column(key, partitions, partitioner):
    column = pa.record_batch({"key": pa.array([key], pa.binary())})
    assert partition_of_key(key, partitions, partitioner) == partition_of(column, partitions, partitioner)[0].as_py()
