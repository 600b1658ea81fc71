"""Unusual records that Kafka accepts from other producers: none of them locks its partition."""

import json
import struct

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from spark_cas.core.errors import ConflictError, FormatError, UndecidedError, UnreadableRecordError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.plan import Progress
from spark_cas.core.recorded_fields import to_json
from spark_cas.core.records import TIMESTAMP_TYPE
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.client_errors import passes
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.options.parse import parse_read
from spark_cas.spark.reading.read import RecordsReader
from spark_cas.spark.schema import RECORDS, RECORDS_AND_HEADERS
from tests.kafka.clients import SECONDS, configure
from tests.kafka.faulted import planned_writer
from tests.kafka.raw_records import RawRecord, append_raw, varint
from tests.kafka.readers import open_transaction
from tests.support.programs import run_cli, run_measured
from tests.support.writing import values_in
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

NOT_TEXT = RawRecord(b"not text", headers=[(b"\xff\xfe", b"1")])
TIME_MS = 1_700_000_000_123
MOST_MS = (2**63 - 1) // 1000
"""The largest timestamp that Spark can store. Its negative is the smallest one."""


@pytest.fixture
def spec(broker, topic):
    """A topic that accepts any timestamp."""
    configure(broker.bootstrap, topic, message_timestamp_after_max_ms=str(2**63 - 1))
    return KafkaSpec(broker.bootstrap, topic, prefix=topic)


def rows_of(spec, schema):
    """Return the rows of a read through the data source, as a Spark task gets them."""
    given = parse_read({"kafka.bootstrap.servers": spec.bootstrap_servers, "subscribe": spec.topic})
    one = RecordsReader(given, schema)
    return pa.Table.from_batches([batch for part in one.partitions() for batch in one.read(part)])


def cli_read(spec, *more):
    ended = run_cli("read", spec.url, *more)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def test_header_that_is_no_text_fails_only_a_read_of_headers(spec):
    append_raw(spec.bootstrap_servers, spec.topic, RawRecord(b"a"), NOT_TEXT, RawRecord(b"b"))
    assert rows_of(spec, RECORDS)["value"].to_pylist() == [b"a", b"not text", b"b"]
    with pytest.raises(UnreadableRecordError) as raised:
        rows_of(spec, RECORDS_AND_HEADERS)
    assert (raised.value.partition, raised.value.offset) == (0, 1)
    assert spec.topic in raised.value.message


def test_each_header_that_is_no_text_is_named(spec):
    append_raw(spec.bootstrap_servers, spec.topic, RawRecord(b"a"), NOT_TEXT, RawRecord(b"b"), NOT_TEXT)
    with KafkaLog(spec) as log:
        for base_offset, expected in [(0, 1), (1, 1), (2, 3), (3, 3)]:
            with pytest.raises(UnreadableRecordError) as raised:
                list(log.read(0, OffsetRange(base_offset, 4)))
            assert raised.value.offset == expected
        assert [batch.num_rows for _, batch in log.read(0, OffsetRange(2, 3))] == [1]


def test_partition_with_a_header_that_is_no_text_takes_appends(spec):
    append_raw(spec.bootstrap_servers, spec.topic, NOT_TEXT)
    with KafkaLog(spec) as log:
        planned_writer(log, expected='{"0": 1}').must_append("a")
    assert rows_of(spec, RECORDS)["value"].to_pylist() == [b"not text", b"a"]


def test_cli_shows_the_records_around_a_header_that_is_no_text(spec):
    has_header = RawRecord(b"b", headers=[(b"h", b"1")])
    append_raw(spec.bootstrap_servers, spec.topic, RawRecord(b"a"), NOT_TEXT, has_header, NOT_TEXT)
    shown = [json.loads(line) for line in cli_read(spec, "--json")]
    assert [each["offset"] for each in shown] == [0, 1, 2, 3]
    assert [each["value"] for each in shown] == ["a", "not text", "b", "not text"]
    assert [each["headers"] for each in shown] == [[], None, [{"key": "h", "value": "1"}], None]
    assert len(cli_read(spec)) == 4


def test_duplicate_empty_null_and_large_headers_are_read_as_they_are(spec):
    written: list[list[tuple[bytes, bytes | None]]] = [
        [(b"a", None), (b"a", b""), (b"", b"x"), (b"a", b"2")],
        [(b"large", b"x" * 900_000)],
        [(b"many", b"x")] * 20_000,
    ]
    append_raw(spec.bootstrap_servers, spec.topic, RawRecord(None, key=b"k", headers=written[0]))
    for each in written[1:]:
        append_raw(spec.bootstrap_servers, spec.topic, RawRecord(headers=each))
    found = rows_of(spec, RECORDS_AND_HEADERS)
    rows = found["headers"].to_pylist()
    assert [[(each["key"].encode(), each["value"]) for each in row] for row in rows] == written
    assert found.select(["key", "value"]).to_pylist()[0] == {"key": b"k", "value": None}


def test_empty_keys_and_values_are_not_null(spec):
    rows = [(b"", b""), (None, b""), (b"", None), (None, None)]
    append_raw(spec.bootstrap_servers, spec.topic, *(RawRecord(value, key) for key, value in rows))
    found = rows_of(spec, RECORDS)
    assert list(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == rows
    assert len(cli_read(spec, "--json")) == len(rows)


def test_timestamp_that_spark_cannot_hold_is_null(spec):
    times = [TIME_MS, 2**63 - 1, MOST_MS, MOST_MS + 1, -(2**63), -MOST_MS, -MOST_MS - 1]
    for each in times:
        append_raw(spec.bootstrap_servers, spec.topic, RawRecord(timestamp_ms=each))
    found = rows_of(spec, RECORDS)
    in_microseconds = [each * 1000 if abs(each) <= MOST_MS else None for each in times]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == in_microseconds
    assert found[TIMESTAMP_TYPE].to_pylist() == [0] * len(times)
    assert [json.loads(line)["timestamp_ms"] for line in cli_read(spec, "--json")] == times
    assert len(cli_read(spec)) == len(times)


def test_timestamps_of_minus_one_and_zero_are_read_as_they_are(spec):
    """Spark's own source does the same. Kafka's producers write -1 for a record without a timestamp."""
    for each in (-1, 0):
        append_raw(spec.bootstrap_servers, spec.topic, RawRecord(timestamp_ms=each))
    assert rows_of(spec, RECORDS)["timestamp"].cast(pa.int64()).to_pylist() == [-1000, 0]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_each_compression_codec_is_read(spec, codec):
    other = Producer({"bootstrap.servers": spec.bootstrap_servers, "compression.type": codec})
    other.produce(spec.topic, b"x" * 10_000, partition=0)
    assert other.flush(SECONDS) == 0
    assert rows_of(spec, RECORDS)["value"].to_pylist() == [b"x" * 10_000]


def zstd_stream(data):
    """Compress as a stream, as Java's producer does: without the decompressed size, so the reader must guess it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def test_batch_of_zstd_that_is_large_only_when_decompressed_is_read(spec):
    """The broker limits the compressed size. By default, the client rejects 100 MB of decompressed data."""
    large_bytes = 120_000_000
    append_raw(spec.bootstrap_servers, spec.topic, RawRecord(bytes(large_bytes)), codec=4, compress=zstd_stream)
    with KafkaLog(spec) as log:
        with pytest.raises(ConflictError):
            planned_writer(log, "other", expected='{"0": 0}')
        planned_writer(log, expected='{"0": 1}').must_append("a")
    assert [len(value) for value in rows_of(spec, RECORDS)["value"].to_pylist()] == [large_bytes, 1]


def zstd_bomb(value_bytes, *, sized):
    """Return a compressed record whose value is zeros: 4 bytes for each 128 KiB. ``sized`` stores the whole size."""
    body = b"\0\0\0" + varint(-1) + varint(value_bytes)
    start = varint(len(body) + value_bytes + 1) + body
    zeros = value_bytes + 1
    sizes = [_BLOCK_BYTES] * (zeros // _BLOCK_BYTES) + [zeros % _BLOCK_BYTES]
    blocks = (
        ((len(start) << 3).to_bytes(3, "little"), start),
        *(((size << 3 | 2).to_bytes(3, "little"), b"\0") for size in sizes),
    )
    frame = struct.pack("<IBB", 0xFD2FB528, 0xC0 if sized else 0, 0x50)
    frame += (len(start) + zeros).to_bytes(8, "little") if sized else b""
    return frame + b"".join(head + content for head, content in blocks) + b"\x01\0\0"


_BLOCK_BYTES = 128 * 1024


@pytest.mark.parametrize("sized", [True, False], ids=["sized", "stream"])
def test_zstd_bomb_is_named_within_bounded_memory(spec, sized):
    bomb = zstd_bomb(2_000_000_000, sized=sized)
    assert len(bomb) < 100_000
    for each in (b"a", None, b"b"):
        codec, compress = (0, bytes) if each else (4, lambda _: bomb)
        append_raw(spec.bootstrap_servers, spec.topic, RawRecord(each), codec=codec, compress=compress)
    ended, peak_bytes = run_measured("-m", "spark_cas.cli", "read", spec.url, "-f", r"%o\n")
    assert (ended.returncode, ended.stdout.splitlines()) == (6, ["0"]), ended.stderr
    assert "[UNREADABLE_RECORD] partition 0" in ended.stderr
    assert f"topic {spec.topic}: the batch of records at offset 1 " in ended.stderr
    assert peak_bytes < 1024**3
    with KafkaLog(spec) as log:
        for around, expected in [(OffsetRange(0, 1), "a"), (OffsetRange(2, 3), "b")]:
            [(_, batch)] = log.read(0, around)
            assert batch["value"].to_pylist() == [expected.encode()]
        for offsets in [(0, 3), (1, 2), (1, 3)]:
            with pytest.raises(UnreadableRecordError) as raised:
                list(log.read(0, OffsetRange(*offsets)))
            assert (raised.value.partition, raised.value.offset) == (0, 1)
        with pytest.raises(UnreadableRecordError):
            planned_writer(log, "other", expected='{"0": 1}').must_append("c")
        planned_writer(log, expected='{"0": 3}').must_append("c")


def test_open_transaction_of_another_producer_is_reported_by_readers_and_writers(broker, topic):
    other = open_transaction(broker.bootstrap, topic, f"other-{topic}")
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, prefix=topic, open_transaction_wait_ms=1_000)) as log:
        with pytest.raises(UndecidedError, match="open at offset 0"):
            values_in(log, 0)
        with pytest.raises(UndecidedError, match="open at offset 0"):
            planned_writer(log)
        other.abort_transaction(SECONDS)
        planned_writer(log).must_append("a")
        assert values_in(log, 0) == ["a"]


@pytest.mark.parametrize("metadata", ["foreign", "{}", "[1]", "null", "\N{SNOWMAN}"])
def test_foreign_metadata_in_a_ledger_group_stops_its_job_and_no_other(spec, metadata):
    commit_foreign(spec, "job", metadata)
    with KafkaLog(spec) as log:
        with pytest.raises(FormatError):
            planned_writer(log, "job").must_append("a")
        planned_writer(log, "other").must_append("b")
        assert values_in(log, 0) == ["b"]


@pytest.mark.parametrize("forged", [{"rows": "3"}, {"end_offset": None}, {"own_ranges": [[1]]}, {"batch": [1]}])
def test_forged_ledger_entry_names_its_partition(spec, forged):
    progress = Progress("job", 0, 3, "ab", 0, 9, 2, 0, complete=False, committed_at_ms=5, task="run/0")
    with KafkaLog(spec) as log:
        fields = {"v": 1, "log_id": log.layout().log_id, "progress": json.loads(to_json(progress)) | forged}
        commit_foreign(spec, "job", json.dumps(fields))
        with pytest.raises(FormatError, match=f"partition 0 of topic {spec.topic}"):
            planned_writer(log, "job").must_append("a")
        assert values_in(log, 0) == []


def test_huge_headers_are_read(spec):
    records = [
        RawRecord(b"large", headers=[(b"key", bytes(900_000))]),
        RawRecord(b"many", headers=[(b"%d" % each, None) for each in range(50_000)]),
        RawRecord(b"long key", headers=[(b"k" * 900_000, b"")]),
    ]
    for each in records:
        append_raw(spec.bootstrap_servers, spec.topic, each)
    read = rows_of(spec, RECORDS_AND_HEADERS).select(["value", "headers"]).to_pylist()
    expected = [(each.value, [(key.decode(), value) for key, value in each.headers]) for each in records]
    assert [(row["value"], [(each["key"], each["value"]) for each in row["headers"]]) for row in read] == expected


@pytest.mark.parametrize("metadata", [None, '{"v":1,"log_id":"another"}'])
def test_foreign_offsets_without_an_entry_for_this_log_are_ignored(spec, metadata):
    commit_foreign(spec, "job", metadata)
    with KafkaLog(spec) as log:
        planned_writer(log, "job").must_append("a")
        assert values_in(log, 0) == ["a"]


def commit_foreign(spec, job, metadata):
    """Commit an offset to the ledger group of a job, as another program's consumer."""
    member = Consumer({"bootstrap.servers": spec.bootstrap_servers, "group.id": spec.group(job)})
    optional = () if metadata is None else (metadata,)

    def committed() -> bool:
        try:
            member.commit(offsets=[TopicPartition(spec.topic, 0, 5, *optional)], asynchronous=False)
        except KafkaException as error:
            if not passes(error.args[0].code(), reached=True):
                raise
            return False
        return True

    wait_until(committed, SECONDS, lambda: "no coordinator of the group")
    member.close()
