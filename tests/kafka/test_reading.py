"""Reads of ordinary producers' records: every committed record of a range, in order and unchanged."""

import gc
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from spark_cas.core.errors import StorageError, TrimmedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import RECORDS
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client import clients
from spark_cas.log.kafka.client.clients import reader
from spark_cas.log.kafka.client.kept_clients import Readers
from spark_cas.log.kafka.offsets import reading
from spark_cas.log.kafka.offsets.reading import first_record, read_records, read_with_gaps
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.options.parse import parse_read
from spark_cas.spark.reading.read import RecordsReader
from spark_cas.spark.schema import RECORDS as SPARK_RECORDS
from tests.kafka.clients import SECONDS, configure, create_topic
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, of_client
from tests.kafka.readers import open_transaction
from tools.kafka_broker.waiting import wait_until

pytestmark = pytest.mark.kafka

TIME_MS = 1_700_000_000_123
STILL_SECONDS = 0.3
"""In this time, a client that continues to fetch sends some fifty requests."""
ALL = tuple(RECORDS.names)


@pytest.fixture
def producer(broker, topic) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "queue.buffering.max.messages": 0}
    producer = Producer(settings)
    producer.init_transactions(SECONDS)
    return producer


@pytest.fixture
def spec(broker, topic):
    return KafkaSpec(broker.bootstrap, topic)


@pytest.fixture
def readers(spec):
    readers = Readers(spec)
    yield readers
    readers.close()


def transaction(producer: Producer, topic: str, rows: Iterable[dict], *, commit: bool = True) -> None:
    """Produce rows in a transaction. Each row holds the arguments of the client's call."""
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, partition=0, **{"timestamp": TIME_MS, **row})
    assert producer.flush(SECONDS) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)


def read(
    spec: KafkaSpec, base: int, end: int, columns: tuple[str, ...] = ALL
) -> Iterator[tuple[int, pa.RecordBatch]]:
    readers = Readers(spec)
    yield from read_records(readers, TopicPartition(spec.topic, 0), OffsetRange(base, end), columns)
    readers.close()


def rows_of(batches: Iterable[tuple[int, pa.RecordBatch]]) -> list[tuple[int, dict]]:
    """Return each record with its offset, after a check that batches are in order and do not overlap."""
    pairs = list(batches)
    assert all(at + batch.num_rows <= following for (at, batch), (following, _) in pairwise(pairs))
    return [(at + i, row) for at, batch in pairs for i, row in enumerate(batch.to_pylist())]


def test_nulls_and_empty_values_differ(producer, spec):
    given: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"v"), (None, b"v"), (b"k", None), (None, None), (b"", b""), (b"\0\xff", b"\xff\0")
    ]  # fmt: skip
    transaction(producer, spec.topic, ({"key": key, "value": value} for key, value in given))
    assert [(row["key"], row["value"]) for _, row in rows_of(read(spec, 0, 6))] == given


@pytest.mark.parametrize(
    ("given", "scanning", "waits_ms"), [("", True, 1), ("", False, 10), ("70", True, 1), ("70", False, 70)]
)
def test_fetch_wait_option_does_not_apply_to_scans(spec, monkeypatch, given, scanning, waits_ms):
    options = (("fetch.wait.max.ms", given),) if given else ()
    made: list[dict] = []
    monkeypatch.setattr(clients, "started", lambda _, settings: made.append(settings))
    reader(replace(spec, client_options=options), scanning=scanning)
    assert [int(each["fetch.wait.max.ms"]) for each in made] == [waits_ms]


def test_read_fetches_no_more_after_its_last_records(proxied):
    """The consumer of the records may be slow: a user's function in Spark, or a disk."""
    topic = create_topic(proxied.direct)
    writing = Producer({"bootstrap.servers": proxied.direct, "linger.ms": 100})
    for _ in range(3):
        writing.produce(topic, b"value", partition=0)
    assert writing.flush(SECONDS) == 0
    spec = KafkaSpec(proxied.bootstrap, topic, client_options=(("client.id", topic),))
    rows = read(spec, 0, 3, ("value",))
    assert next(rows)[1].num_rows == 3
    time.sleep(STILL_SECONDS)  # a fetch may be in flight
    asked = proxied.proxy.add(Fault.WATCH, Api.FETCH, times=None, where=of_client(topic))
    time.sleep(STILL_SECONDS)
    assert not asked.reached.has_come
    assert list(rows) == []


def test_nor_where_its_last_offset_is_that_of_a_marker(proxied):
    topic = create_topic(proxied.direct)
    writing = Producer({"bootstrap.servers": proxied.direct, "transactional.id": topic, "linger.ms": 100})
    writing.init_transactions(SECONDS)
    transaction(writing, topic, [{"value": b"value"}] * 3)
    spec = KafkaSpec(proxied.bootstrap, topic, client_options=(("client.id", topic),))
    with KafkaLog(spec) as log:
        assert log.bounds(0).end_offset == 4
    rows = read(spec, 0, 4, ("value",))
    assert next(rows)[1].num_rows == 3
    time.sleep(STILL_SECONDS)
    asked = proxied.proxy.add(Fault.WATCH, Api.FETCH, times=None, where=of_client(topic))
    time.sleep(STILL_SECONDS)
    assert not asked.reached.has_come
    assert list(rows) == []


def test_short_read_that_ends_after_aborted_records_fetches_no_more(proxied):
    topic, value = create_topic(proxied.direct), b"x" * 20_000
    writing = Producer({"bootstrap.servers": proxied.direct, "transactional.id": topic, "linger.ms": 100})
    writing.init_transactions(SECONDS)
    transaction(writing, topic, [{"value": value}] * 200)
    transaction(writing, topic, [{"value": value}] * 50, commit=False)
    with KafkaLog(KafkaSpec(proxied.bootstrap, topic)) as log:
        end = log.bounds(0).end_offset
    spec = KafkaSpec(proxied.bootstrap, topic, client_options=(("client.id", topic),))
    rows = read(spec, 0, end, ("value",))
    first = next(rows)[1].num_rows
    time.sleep(STILL_SECONDS)
    asked = proxied.proxy.add(Fault.WATCH, Api.FETCH, times=None, where=of_client(topic))
    time.sleep(STILL_SECONDS)
    assert not asked.reached.has_come
    assert first + sum(batch.num_rows for _, batch in rows) == 200


def test_short_read_of_large_records_is_yielded_as_it_arrives(producer, readers, monkeypatch):
    monkeypatch.setattr(reading, "_SHORT_BYTES", 15)
    monkeypatch.setattr(reading, "_POLL_MESSAGES", 2)
    topic, taken, take = readers.spec.topic, [0], reading._take
    transaction(producer, topic, [{"value": b"value"}] * 8)

    def counted(*given):
        records, ended = take(*given)
        taken[0] += 0 if records is None else len(records[0])
        return records, ended

    monkeypatch.setattr(reading, "_take", counted)
    rows = read_with_gaps(readers, TopicPartition(topic, 0), OffsetRange(0, 8), ("value",))
    assert next(rows)[0][0] == 0
    assert 0 < taken[0] <= 4
    assert sum(len(found) for found, _ in rows) + 2 >= taken[0] == 8


@pytest.mark.parametrize(
    "case", [(3, "", "1"), (reading._SHORT, "", "1"), (20_000, "", "10"), (3, "70", "70"), (20_000, "70", "70")]
)
def test_a_broker_waits_for_more_where_a_read_is_no_few_records(producer, readers, monkeypatch, case):
    made: list[str] = []
    end, given, waits_ms = case
    readers.spec = replace(readers.spec, client_options=(("fetch.wait.max.ms", given),) if given else ())

    def start(make, settings):
        made.append(str(settings["fetch.wait.max.ms"]))
        return make(settings)

    monkeypatch.setattr(clients, "started", start)
    at = TopicPartition(readers.spec.topic, 0)
    transaction(producer, at.topic, [{"value": b"value"}] * end)
    assert sum(len(found) for found, _ in read_with_gaps(readers, at, OffsetRange(0, end), ())) == end
    assert made == [waits_ms]


def test_a_read_is_checked_while_its_records_are_on_their_way(proxied):
    topic = create_topic(proxied.direct)
    writing = Producer({"bootstrap.servers": proxied.direct})
    writing.produce(topic, b"value", partition=0)
    assert writing.flush(SECONDS) == 0
    readers = Readers(KafkaSpec(proxied.bootstrap, topic))
    asked = proxied.proxy.add(Fault.WATCH, Api.FETCH, times=None)
    checked: list[bool] = []

    def check() -> None:
        wait_until(lambda: asked.reached.has_come, SECONDS, lambda: "no fetch request was sent")
        checked.append(True)

    rows = read_with_gaps(readers, TopicPartition(topic, 0), OffsetRange(0, 1), ("value",), check)
    assert [each["value"] for _, batch in rows for each in batch.to_pylist()] == [b"value"]
    assert checked == [True]
    readers.close()


def test_rejected_read_yields_nothing(producer, spec, readers):
    transaction(producer, spec.topic, [{"value": b"value"}])

    def check() -> None:
        raise ValueError("refused")

    for end in (0, 1):
        with pytest.raises(ValueError, match="refused"):
            next(read_with_gaps(readers, TopicPartition(spec.topic, 0), OffsetRange(0, end), ("value",), check))


def test_paused_read_fetches_only_a_part_ahead(proxied):
    """The client does not know where the range ends, and fetches records after it without use."""
    topic, sent, value = create_topic(proxied.direct), 120_000, b"x" * 100
    writing = Producer({"bootstrap.servers": proxied.direct, "linger.ms": 100, "queue.buffering.max.messages": 0})
    for _ in range(sent):
        writing.produce(topic, value, partition=0)
    assert writing.flush(SECONDS) == 0
    fetched = proxied.proxy.traffic.response_bytes
    fetched.clear()
    rows = read(KafkaSpec(proxied.bootstrap, topic), 0, 60_000, ("value",))
    taken = next(rows)[1].num_rows
    before = -1
    while fetched[Api.FETCH] > before:
        before = fetched[Api.FETCH]
        time.sleep(STILL_SECONDS)
    assert 0 < before < sent * len(value) / 2
    assert taken + sum(batch.num_rows for _, batch in rows) == 60_000


def test_headers_keep_their_order_and_repeated_keys_and_null_values(producer, spec):
    pairs = [("b", b"1"), ("a", None), ("b", b""), ("", b"\0"), ("é", b"2")]
    transaction(producer, spec.topic, [{"headers": None}, {"headers": pairs}, {"headers": []}])
    without, given, empty = (row["headers"] for _, row in rows_of(read(spec, 0, 3)))
    assert [(each["key"], each["value"]) for each in given] == pairs
    assert without is None
    assert empty is None


def test_each_record_has_its_own_timestamp(producer, spec):
    times = [TIME_MS, 1, TIME_MS - 1, -5]
    transaction(producer, spec.topic, ({"timestamp": each} for each in times))
    found = pa.Table.from_batches([batch for _, batch in read(spec, 0, 4, ("timestamp",))])
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == times


@pytest.mark.parametrize("columns", [("value",), ("timestamp", "key"), ("headers",), ALL, ()])
def test_only_requested_columns_are_built(producer, spec, monkeypatch, columns):
    made: list[str] = []

    def seen(name: str):
        def make(messages):
            made.append(name)
            return makers[name](messages)

        return make

    makers = {**reading._COLUMNS, "timestamp": reading._stamps}
    monkeypatch.setattr(reading, "_COLUMNS", {name: seen(name) for name in reading._COLUMNS})
    monkeypatch.setattr(reading, "_stamps", seen("timestamp"))
    transaction(producer, spec.topic, [{"key": b"k", "value": b"v", "headers": [("h", b"1")]}] * 3)
    ((at, batch),) = read(spec, 0, 3, columns)
    assert (at, batch.num_rows) == (0, 3)
    assert batch.schema == pa.schema([RECORDS.field(name) for name in columns])
    assert sorted(made) == sorted(columns)


def test_many_records_are_read_in_order(producer, spec):
    rows = 100_003
    transaction(producer, spec.topic, ({"value": b"%d" % i, "key": b"%d" % (i % 7)} for i in range(rows)))
    batches = list(read(spec, 0, rows))
    found = pa.Table.from_batches([batch for _, batch in batches])
    assert found.column("value").to_pylist() == [b"%d" % i for i in range(rows)]
    assert found.column("key").to_pylist() == [b"%d" % (i % 7) for i in range(rows)]
    assert max(batch.num_rows for _, batch in batches) <= reading._POLL_MESSAGES
    assert found.column("headers").null_count == rows


def test_headers_stay_with_their_records(producer, spec):
    rows = 2 * reading._POLL_MESSAGES + 5
    chosen = {0, 7, reading._POLL_MESSAGES - 1, reading._POLL_MESSAGES, rows - 1}
    transaction(
        producer, spec.topic, ({"headers": [("row", b"%d" % i)] if i in chosen else None} for i in range(rows))
    )
    found = {at: row["headers"] for at, row in rows_of(read(spec, 0, rows)) if row["headers"]}
    assert found == {at: [{"key": "row", "value": b"%d" % at}] for at in chosen}


def test_offsets_without_a_record_cut_the_batches(producer, spec):
    # Markers at 2, 6 and 8; 3 to 5 aborted.
    transaction(producer, spec.topic, [{"value": b"0"}, {"value": b"1"}])
    transaction(producer, spec.topic, [{"value": b"aborted"}] * 3, commit=False)
    transaction(producer, spec.topic, [{"value": b"7"}])
    transaction(producer, spec.topic, [{"value": b"9"}, {"value": b"10"}])
    for base, end, wanted in [
        (0, 12, {0: 2, 7: 1, 9: 2}),
        (1, 10, {1: 1, 7: 1, 9: 1}),
        (2, 7, {}),
        (3, 8, {7: 1}),
        (8, 9, {}),
        (11, 12, {}),
        (10, 11, {10: 1}),
        (4, 4, {}),
    ]:
        found = list(read(spec, base, end))
        assert {at: batch.num_rows for at, batch in found} == wanted, (base, end)
        assert all(row["value"] == b"%d" % at for at, row in rows_of(found))


def test_records_between_two_gaps_are_no_separate_batch(producer, spec):
    for number in range(50):
        transaction(producer, spec.topic, [{"value": b"%d" % number}])
    with KafkaLog(spec) as log:
        found = list(log.read_with_gaps(0, OffsetRange(2, 99), ("value",)))
    assert len(found) < 10
    offsets = [int(each) for some, _ in found for each in some]
    assert offsets == list(range(2, 99, 2))
    assert [row["value"] for _, batch in found for row in batch.to_pylist()] == [b"%d" % (at // 2) for at in offsets]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kept", [2, 4])
def test_trim_between_the_plan_of_a_read_and_its_task(producer, spec, strict, kept):
    transaction(producer, spec.topic, ({"value": b"%d" % i} for i in range(4)))
    options = {
        "kafka.bootstrap.servers": spec.bootstrap_servers,
        "subscribe": spec.topic,
        "failOnDataLoss": str(strict),
    }
    wanted = parse_read(options)
    one = RecordsReader(wanted, SPARK_RECORDS)
    (part,) = one.partitions()
    with KafkaLog(spec) as log:
        log.trim(0, kept)
    if strict:
        with pytest.raises(TrimmedError, match=f"offsets 0 to {kept - 1}"):
            list(one.read(part))
    else:
        found = [offset for batch in one.read(part) for offset in batch.column("offset").to_pylist()]
        assert found == [*range(kept, 4)]


def test_whose_a_records_time_is(producer, broker, spec):
    """Each record keeps the timestamp type that the topic had when the record was appended."""
    wanted = parse_read({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": spec.topic})

    def after_another() -> list[int]:
        transaction(producer, spec.topic, [{"value": b"v"}])
        one = RecordsReader(wanted, SPARK_RECORDS)
        (part,) = one.partitions()
        return [kind for batch in one.read(part) for kind in batch.column("timestampType").to_pylist()]

    assert [after_another(), after_another()] == [[0], [0, 0]]
    configure(broker.bootstrap, spec.topic, message_timestamp_type="LogAppendTime")
    wait_until(lambda: after_another()[-1] == 1, 10, lambda: "the topic is as it was")
    found = after_another()
    assert found[-2:] == [1, 1]
    assert found == sorted(found)
    assert found[:2] == [0, 0]
    configure(broker.bootstrap, spec.topic, message_timestamp_type="CreateTime")
    wait_until(lambda: after_another()[-1] == 0, 10, lambda: "the topic is as it was")
    again = after_another()
    assert again[: len(found)] == found
    assert again[-2:] == [0, 0]


def test_range_ends_before_later_records(producer, spec):
    transaction(producer, spec.topic, ({"value": b"%d" % i} for i in range(30_000)))
    for base, end in [(0, 1), (0, 9_999), (5, 10_005), (29_999, 30_000), (12_345, 23_456)]:
        assert [row["value"] for _, row in rows_of(read(spec, base, end))] == [b"%d" % i for i in range(base, end)]


def test_first_record_is_read_after_a_gap(producer, spec, readers):
    transaction(producer, spec.topic, [{"value": b"aborted"}] * 3, commit=False)
    transaction(producer, spec.topic, [{"value": b"4"}, {"value": b"5"}])
    at = TopicPartition(spec.topic, 0)
    for base, end, wanted in [(0, 7, 4), (0, 4, None), (4, 5, 4), (5, 7, 5), (6, 7, None), (3, 3, None)]:
        assert first_record(readers, at, OffsetRange(base, end)) == wanted


def test_removed_range_is_reported(producer, spec, readers):
    transaction(producer, spec.topic, ({"value": b"%d" % i} for i in range(9)))
    with KafkaLog(spec) as log:
        log.trim(0, 5)
    with pytest.raises(TrimmedError, match=r"offsets 2 to 4 were removed .* from offset 5 on"):
        list(read(spec, 2, 9))
    # A writer that searches for a record retries: this error alone neither rejects nor permits its append.
    with pytest.raises(StorageError, match="offsets 2 to 4 were removed"):
        first_record(readers, TopicPartition(spec.topic, 0), OffsetRange(2, 9))


def test_timeout_of_a_reader_does_not_mention_appends(broker, topic):
    other = open_transaction(broker.bootstrap, topic, f"other-{topic}")
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=1_000)) as log:
        with pytest.raises(StorageError, match="a transaction has been open at offset 0") as raised:
            log.bounds(0)
        assert "appended" not in raised.value.message
    other.abort_transaction(SECONDS)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(producer, spec, enabled):
    transaction(producer, spec.topic, [{"value": b"v"}] * 2)
    transaction(producer, spec.topic, [{"value": b"v"}] * 2)
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        for _ in read(spec, 0, 6):
            assert gc.isenabled() == enabled
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.fixture
def opened(monkeypatch):
    """The consumers that were opened, in order."""
    opened: list[Consumer] = []

    def open_one(*arguments, **named):
        opened.append(reader(*arguments, **named))
        return opened[-1]

    monkeypatch.setattr("spark_cas.log.kafka.client.kept_clients.reader", open_one)
    return opened


def is_closed(consumer: Consumer) -> bool:
    try:
        consumer.assignment()
    except RuntimeError:
        return True
    return False


def test_a_consumer_is_kept_for_the_next_read(producer, spec, readers, opened):
    transaction(producer, spec.topic, ({"value": b"%d" % i} for i in range(4)))
    at = TopicPartition(spec.topic, 0)
    for base in (0, 2, 1):
        [(offset, records)] = read_records(readers, at, OffsetRange(base, base + 2), ("value",))
        assert (offset, records.column("value").to_pylist()) == (base, [b"%d" % base, b"%d" % (base + 1)])
    assert len(opened) == 1
    readers.close()
    assert is_closed(opened[0])


def test_a_consumer_serves_one_topic(producer, broker, spec, readers, opened):
    """For another topic, the consumer would request the leaders only after a second."""
    other = create_topic(broker.bootstrap)
    for topic in (spec.topic, other):
        transaction(producer, topic, [{"value": b"v"}])
        [(_, records)] = read_records(readers, TopicPartition(topic, 0), OffsetRange(0, 1), ("value",))
        assert records.num_rows == 1
    assert len(opened) == 2


@pytest.fixture
def none_is_short(monkeypatch):
    monkeypatch.setattr(reading, "_SHORT", 0)


@pytest.mark.usefixtures("none_is_short")
def test_two_reads_at_once_have_a_consumer_each(producer, spec, readers, opened):
    transaction(producer, spec.topic, ({"value": b"%d" % i} for i in range(4)))
    at = TopicPartition(spec.topic, 0)
    one, other = (read_records(readers, at, OffsetRange(base, base + 2), ("value",)) for base in (0, 2))
    assert [next(one)[0], next(other)[0]] == [0, 2]
    assert list(one) == list(other) == []
    assert list(map(is_closed, opened)) == [False, True], "one is enough to keep"


@pytest.mark.usefixtures("none_is_short")
def test_a_consumer_whose_read_was_left_or_failed_is_not_used_again(producer, spec, readers, opened):
    transaction(producer, spec.topic, ({"value": b"%d" % i} for i in range(4)))
    at = TopicPartition(spec.topic, 0)
    left = read_records(readers, at, OffsetRange(0, 2), ("value",))
    next(left)
    del left
    with KafkaLog(spec) as log:
        log.trim(0, 1)
    with pytest.raises(TrimmedError):
        list(read_records(readers, at, OffsetRange(0, 2), ("value",)))
    assert len(opened) == 2
    assert all(map(is_closed, opened))


def test_consumer_with_statistics_is_not_kept(readers, opened):
    with readers.borrow(readers.spec.topic, scanning=False, statistics=lambda _: None):
        pass
    assert list(map(is_closed, opened)) == [True]


def test_a_read_that_outlasts_its_log_closes_its_consumer(producer, spec, readers, opened):
    transaction(producer, spec.topic, [{"value": b"v"}])
    late = read_records(readers, TopicPartition(spec.topic, 0), OffsetRange(0, 1), ("value",))
    next(late)
    readers.close()
    assert list(late) == []
    assert is_closed(opened[0])
