"""Produced records are on the broker exactly as the caller gave them. An ordinary consumer verifies this."""

import ctypes
import gc
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition, cimpl

from spark_cas.core.errors import SchemaError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.records import RECORDS
from spark_cas.log.kafka.accelerators import librdkafka
from spark_cas.log.kafka.accelerators.array_producer import ArrayProducer
from spark_cas.log.kafka.append.placement import await_visible
from spark_cas.log.kafka.client.clients import PlainProducer, TransactionalProducer, admin_client, group_member
from spark_cas.log.kafka.client.object_producer import SLICE_ROWS, ObjectProducer
from spark_cas.log.kafka.client.sending import Reports, Sending, held_back, produce, refuse_unsendable
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import describe
from tests.kafka.clients import SECONDS
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault
from tests.kafka.readers import wait_for
from tests.long import full
from tools.kafka_broker.waiting import wait_until

pytestmark = pytest.mark.kafka

TIME_MS = 1_700_000_000_123
STILL_SECONDS = 0.5
"""Much longer than the client takes to send records that it does not hold back."""

LIBRARIES = {ArrayProducer: librdkafka.library, ObjectProducer: lambda: None}


BOTH = pytest.mark.parametrize("producer", LIBRARIES, indirect=True)
"""For the tests of both clients in `make test`. `make test-full` runs each test with both."""


@pytest.fixture(params=[ArrayProducer, *full(ObjectProducer)])
def producer(request, broker, topic, monkeypatch) -> Iterator[TransactionalProducer]:
    monkeypatch.setattr(librdkafka, "library", LIBRARIES[request.param])
    producer = TransactionalProducer(KafkaSpec(broker.bootstrap, topic), f"test/{uuid.uuid4()}")
    assert type(producer.client) is request.param
    producer.init(SECONDS)
    producer.begin()
    yield producer
    if hasattr(producer, "client"):
        producer.close()


def records(*rows: dict, slices: int | None = None) -> pa.Table:
    """Return a table with these fields of its rows. Its batches have at most ``slices`` rows."""
    filled = [{"key": None, "value": b"v", "headers": None, "timestamp": TIME_MS, **row} for row in rows]
    columns = [pa.array([row[name] for row in filled], RECORDS.field(name).type) for name in RECORDS.names]
    table = pa.table(columns, schema=RECORDS)
    return pa.Table.from_batches(table.to_batches(max_chunksize=slices), RECORDS)


def messages(address: str, topic: str, partition: int = 0) -> list[Message]:
    """Return all messages that a reader of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Message] = []
    try:
        while True:
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is None:
                    found.append(message)
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
    finally:
        consumer.close()


def hand_over(client: ArrayProducer | ObjectProducer, rows: pa.Table) -> Reports:
    """Queue records for partition 0, and return their reports."""
    reports = Reports.of(rows, TIME_MS)
    client.hand_over(0, rows, TIME_MS, reports)
    return reports


def send(producer: TransactionalProducer, topic: str, rows: pa.Table) -> Reports:
    delivered = produce(producer, TopicPartition(topic, 0), rows, TIME_MS, SECONDS)
    assert delivered is not None
    producer.commit()
    return delivered


@pytest.mark.parametrize("size", [10, 900])
def test_client_queues_only_records_that_fill_no_request(producer, size):
    """The number of records or their bytes can fill a request. Only the last records of a chunk wait for a flush."""
    many = records(*[{"key": b"key", "value": bytes(size), "timestamp": None}] * 12_000)
    count = held_back(many, producer.request_bytes)
    assert 0 < count < many.num_rows - 1

    def waiting() -> int:
        producer.client.poll(0.01)  # the count includes unread log lines of the client
        return len(producer.client)

    hand_over(producer.client, many.slice(many.num_rows - count))
    until = time.monotonic() + STILL_SECONDS
    while time.monotonic() < until:
        waiting()
    wait_until(lambda: waiting() == count, SECONDS, lambda: "the client sent some of the records")
    producer.abort()
    producer.begin()
    hand_over(producer.client, many.slice(many.num_rows - count - 1))
    wait_until(lambda: waiting() <= count, SECONDS, lambda: "the client queues all of the records")


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([], 0),
        ([100], 0),
        ([99], 1),
        ([None, 0], 2),
        ([10, 60, 39], 2),
        ([10, 60, 40], 1),
        ([1] * 80 + [50], 50),
    ],
)
def test_how_many_records_fill_no_request(sizes, count):
    rows = records(*({"value": None if size is None else bytes(size)} for size in sizes), slices=7)
    assert held_back(rows, 100) == count


@BOTH
def test_an_empty_key_or_value_is_not_a_null_one(broker, topic, producer):
    given = list(product([b"k", None, b"", b"\0\xff"], [b"v", None, b"", b"\0\xff"]))
    send(producer, topic, records(*({"key": key, "value": value} for key, value in given)))
    assert [(each.key(), each.value()) for each in messages(broker.bootstrap, topic)] == given


@BOTH
def test_headers_keep_their_order_and_repeated_keys_and_null_values(broker, topic, producer):
    headers: list[dict[str, str | bytes | None]] = [
        {"key": "b", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "b", "value": b""},
        {"key": "", "value": b"\0"},
        {"key": "é", "value": b"2"},
    ]
    send(producer, topic, records({"headers": None}, {"headers": headers}, {"headers": []}))
    without, given, empty = (each.headers() for each in messages(broker.bootstrap, topic))
    assert given == [(each["key"], each["value"]) for each in headers]
    assert without is None
    assert empty is None


@pytest.mark.parametrize("headers", [None, []])
def test_no_headers_are_none_whether_the_list_is_null_or_empty(broker, topic, producer, headers):
    send(producer, topic, records(*({"headers": headers, "timestamp": None} for _ in range(3))))
    assert [each.headers() for each in messages(broker.bootstrap, topic)] == [None] * 3


@BOTH
def test_each_record_has_its_own_timestamp(broker, topic, producer):
    times = [TIME_MS, 1, TIME_MS + 1, TIME_MS - 1]
    send(producer, topic, records(*({"timestamp": each} for each in times)))
    assert [each.timestamp()[1] for each in messages(broker.bootstrap, topic)] == times


@pytest.mark.parametrize("headers", [None, [{"key": "h", "value": b"1"}]])
def test_many_records_lie_in_their_order(broker, topic, producer, headers):
    rows = 100_003
    given = records(*({"value": b"%d" % i, "headers": headers} for i in range(rows)), slices=7_001)
    assert send(producer, topic, given).range == OffsetRange(0, rows)
    found = messages(broker.bootstrap, topic)
    assert [each.value() for each in found] == [b"%d" % i for i in range(rows)]
    assert all((each.headers() is None) == (headers is None) for each in found[:: rows // 10])


@BOTH
def test_headers_that_begin_in_the_middle_are_those_of_their_records(broker, topic, producer):
    with_headers = {0, 5, SLICE_ROWS - 1, SLICE_ROWS + 3, 3 * SLICE_ROWS + 1}
    given = [
        {"value": b"%d" % i, "headers": [{"key": "row", "value": b"%d" % i}] if i in with_headers else None}
        for i in range(3 * SLICE_ROWS + 2)
    ]
    send(producer, topic, records(*given))
    found = {each.value(): each.headers() for each in messages(broker.bootstrap, topic)}
    assert {int(value) for value, headers in found.items() if headers and value} == with_headers
    assert all(headers == [("row", value)] for value, headers in found.items() if headers)


@pytest.mark.parametrize("rows", [1, 2, 3, SLICE_ROWS, SLICE_ROWS + 1, 2 * SLICE_ROWS])
def test_the_first_and_the_last_offset_are_reported(broker, topic, producer, rows):
    send(producer, topic, records({"value": b"before"}))
    producer.begin()
    given = records(*({"value": b"%d" % i} for i in range(rows)))
    # The marker of the first transaction has an offset of its own.
    assert send(producer, topic, given).range == OffsetRange(2, rows + 2)
    assert len(messages(broker.bootstrap, topic)) == rows + 1


@pytest.mark.parametrize("times", [None, TIME_MS])
def test_reports_of_earlier_records_are_ignored(topic, producer, times):
    before = Sending(producer, TopicPartition(topic, 0), records({"timestamp": times}, {"timestamp": times}), TIME_MS)
    after = Sending(producer, TopicPartition(topic, 0), records({"timestamp": times}), TIME_MS)
    assert after.arrive(SECONDS)
    assert after.delivered().range == OffsetRange(2, 3)
    assert before.delivered().range in (None, OffsetRange(0, 2))


@pytest.mark.parametrize("rows", [1, 3 * SLICE_ROWS])
def test_records_without_a_timestamp_get_a_reported_one(broker, topic, producer, rows):
    sent = send(producer, topic, records(*({"timestamp": None} for _ in range(rows))))
    assert {each.timestamp()[1] for each in messages(broker.bootstrap, topic)} == {sent.explicit_ms}
    assert abs(time.time() * 1000 - TIME_MS) > 3_600_000, "otherwise the next line checks nothing"
    assert sent.explicit_ms == TIME_MS or abs(time.time() * 1000 - (sent.explicit_ms or 0)) < 60_000


def test_record_without_a_timestamp_gets_that_of_the_chunk(broker, topic, producer):
    sent = send(producer, topic, records({"timestamp": None}, {"timestamp": 7}))
    assert [each.timestamp()[1] for each in messages(broker.bootstrap, topic)] == [TIME_MS, 7]
    assert sent.explicit_ms == TIME_MS


def test_a_slice_of_a_table_is_sent_and_no_row_beside_it(broker, topic, producer):
    whole = records(*({"key": b"%d" % i, "value": None if i % 3 else b"%d" % i} for i in range(100)), slices=9)
    send(producer, topic, whole.slice(17, 50))
    assert [each.key() for each in messages(broker.bootstrap, topic)] == [b"%d" % i for i in range(17, 67)]


@pytest.mark.parametrize("topic", [2], indirect=True)
def test_only_the_named_partition_is_written(broker, topic, producer):
    given = records(*({"key": b"%d" % i} for i in range(100)))
    sent = produce(producer, TopicPartition(topic, 1), given, TIME_MS, SECONDS)
    assert sent is not None
    assert sent.range == OffsetRange(0, 100)
    producer.commit()
    assert messages(broker.bootstrap, topic) == []
    assert len(messages(broker.bootstrap, topic, 1)) == 100


@pytest.mark.parametrize("place", [0, 1, 20_000])
def test_a_record_that_is_too_large_is_an_error(topic, producer, place):
    given = [{"value": b"v"} for _ in range(20_001)]
    given[place] = {"value": bytes(2_000_000)}
    with pytest.raises(KafkaException) as raised:
        produce(producer, TopicPartition(topic, 0), records(*given), TIME_MS, SECONDS)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert producer.abort()


@pytest.mark.parametrize("times", [None, TIME_MS])
@pytest.mark.parametrize("kind", LIBRARIES)
def test_no_record_is_sent_after_a_rejected_one(broker, topic, monkeypatch, kind, times):
    monkeypatch.setattr(librdkafka, "library", LIBRARIES[kind])
    spec = KafkaSpec(broker.bootstrap, topic, client_options=(("message.max.bytes", "5000"),))
    producer = PlainProducer(spec, None, idempotent=True)
    values = [b"0", b"1", bytes(4_990), b"3"]
    given = records(*({"key": b"of 10 bytes", "value": value, "timestamp": times} for value in values))
    with pytest.raises(KafkaException) as raised:
        hand_over(producer.client, given)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    wait_until(lambda: not producer.client.flush(0.05) and not len(producer.client), SECONDS, lambda: "not sent")
    assert [each.value() for each in messages(broker.bootstrap, topic)] in ([], values[:2])
    producer.close()


@pytest.mark.parametrize("times", [None, TIME_MS])
def test_values_are_held_until_they_were_sent(broker, topic, producer, times):
    values = [b"%099d" % each for each in range(2_000)]
    reports = hand_over(producer.client, records(*({"value": each, "timestamp": times} for each in values)))
    producer.client.poll(0)
    # Only the client references the values. If their memory were free, these arrays would overwrite it.
    others = [pa.array([b"x" * 99] * len(values)) for _ in range(20)]
    wait_until(lambda: not producer.client.flush(0.05) and not len(producer.client), SECONDS, lambda: "not sent")
    producer.commit()
    assert reports.error is None
    assert [each.value() for each in messages(broker.bootstrap, topic)] == values
    assert len(others) == 20


def test_values_are_let_go_of_once_they_were_sent(topic, producer):
    def queue_is_empty():
        producer.client.poll(0)  # the client may log a line after the last report
        return not len(producer.client)

    send(producer, topic, records({"value": b"first"}))
    wait_until(queue_is_empty, SECONDS, lambda: "the queue is not empty")
    gc.collect()  # otherwise, arrays of other tests may be freed later
    before = pa.total_allocated_bytes()
    producer.begin()
    send(producer, topic, records(*({"value": bytes(1_000)} for _ in range(1_000))))
    wait_until(queue_is_empty, SECONDS, lambda: "the queue is not empty")
    assert pa.total_allocated_bytes() == before


@BOTH
def test_a_transaction_is_aborted_while_records_are_on_their_way(broker, topic, producer):
    hand_over(producer.client, records({"value": b"aborted"}, {"value": b"too"}))
    assert len(producer.client)
    assert producer.abort()
    producer.begin()
    send(producer, topic, records({"value": b"committed"}))
    assert [each.value() for each in messages(broker.bootstrap, topic)] == [b"committed"]


def test_broken_instance_is_reported_by_the_next_poll(topic, producer):
    if not isinstance(producer.client, ArrayProducer):
        return  # the test cannot access this client
    breaking = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    breaking.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    breaking(producer.client._client, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"made up")
    with pytest.raises(KafkaException) as raised, producer.watched():
        producer.client.poll(SECONDS)
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.fatal is raised.value.args[0]


def test_running_call_is_not_the_cause_of_a_broken_transaction(proxied, proxied_topic):
    spec = KafkaSpec(proxied.bootstrap, proxied_topic)
    producer, member = (
        TransactionalProducer(spec, f"test/{uuid.uuid4()}"),
        group_member(spec, "group", lambda *_: None),
    )
    producer.init(SECONDS)
    producer.begin()
    held = proxied.proxy.add(Fault.HOLD_REQUEST, Api.ADD_OFFSETS_TO_TXN)
    adding = producer.adding([TopicPartition(proxied_topic, 0, 0)], "group", member)
    held.reached.wait(SECONDS)
    late = KafkaError(KafkaError._TIMED_OUT)
    assert producer.root_cause(late) is late
    held.release()
    adding.result()
    member.close()
    producer.close()


def test_the_one_time_that_the_client_would_replace_is_refused():
    refuse_unsendable(records({}, {"timestamp": None}, {"timestamp": -1}, {"timestamp": 1}))
    with pytest.raises(SchemaError, match="1970-01-01 00:00:00"):
        refuse_unsendable(records({}, {"timestamp": 0}))


def test_a_header_key_that_the_client_would_cut_off_is_refused():
    refuse_unsendable(records({}, {"headers": []}, {"headers": [{"key": "k", "value": b"\0"}]}))
    with pytest.raises(SchemaError, match="NUL"):
        refuse_unsendable(records({}, {"headers": [{"key": "a", "value": None}, {"key": "k\0x", "value": b"1"}]}))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_refused(header):
    with pytest.raises(SchemaError, match="no key"):
        refuse_unsendable(records({}, {"headers": [{"key": "k", "value": None}, header]}))


def test_unacknowledged_records_are_reported(broker, topic, producer):
    broker.freeze()
    try:
        assert produce(producer, TopicPartition(topic, 0), records({}, {}), TIME_MS, 0.3) is None
    finally:
        broker.thaw()


@BOTH
def test_records_are_stable_soon_after_the_commit(broker, topic, producer):
    at = TopicPartition(topic, 0)
    assert produce(producer, at, records({}, {}), TIME_MS, SECONDS) is not None
    if isinstance(producer.client, ArrayProducer):
        assert producer.decided_bounds(0) == Bounds(0, 0)
    producer.commit()
    admin = admin_client(KafkaSpec(broker.bootstrap, topic))
    # The commit marker has an offset too. If the producer cannot request bounds, the admin client does.
    assert await_visible(admin, at, OffsetRange(0, 2), producer) == Bounds(0, 3)


@BOTH
def test_topic_is_described_only_by_the_broker_of_the_records(broker, topic, producer):
    admin = admin_client(KafkaSpec(broker.bootstrap, topic))
    planned = str(describe(admin, topic).topic_id), 1

    def told() -> tuple[str, int] | None:
        with suppress(KafkaException):
            return producer.describe()
        return None

    assert told() is None  # no broker has acknowledged records yet
    assert produce(producer, TopicPartition(topic, 0), records({}, {}), TIME_MS, SECONDS) is not None
    if isinstance(producer.client, ObjectProducer):
        assert told() is None
        return
    assert told() == planned
    producer.client._acknowledged_by += 1
    assert told() is None  # no other broker gets the request instead
    producer.client._acknowledged_by -= 1
    broker.freeze()
    try:
        assert told() is None
    finally:
        broker.thaw()
    wait_until(lambda: told() == planned, SECONDS, lambda: "the plan is not reported")
    admin.client.delete_topics([topic])[topic].result(SECONDS)
    wait_until(lambda: told() not in (planned, None), SECONDS, lambda: "the topic still exists")


def test_a_thread_that_is_in_a_call_may_outstay_the_client(producer):
    in_call = Thread(target=producer.client.poll, args=(1,))
    in_call.start()
    producer.close()
    in_call.join(SECONDS)
    assert not in_call.is_alive()


@pytest.mark.parametrize("call", ["poll", "flush"])
def test_running_call_ends_without_error_when_its_client_is_released(call):
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        made = PlainProducer(KafkaSpec(f"127.0.0.1:{silent.getsockname()[1]}", "flights"), None, idempotent=True)
        client = made.client
        if isinstance(client, ArrayProducer):
            hand_over(client, records({"value": b"v"}))
            under_way = pool.submit(getattr(client, call), 2)
            wait_for(lambda: client._lifetime._calls, "the call is running")
            made.close()
            under_way.result(SECONDS)


def threads() -> set[Path]:
    return {*Path("/proc/self/task").iterdir()}


@pytest.mark.full
def test_threads_end_with_the_client_even_if_an_error_is_kept(broker, topic):
    """A thread of a client that is no longer polled can use a whole processor (decision 0010)."""
    spec, own_id = KafkaSpec(broker.bootstrap, topic), f"test/{uuid.uuid4()}"
    before = threads()
    first, second = TransactionalProducer(spec, own_id), TransactionalProducer(spec, own_id)
    first.init(SECONDS)
    first.begin()
    hand_over(first.client, records({"value": b"v"}))
    second.init(SECONDS)
    with pytest.raises(KafkaException) as raised:
        first.commit()
    if isinstance(first.client, ArrayProducer):
        assert len(threads() - before) > 2
        for each in (first, second):
            each.close()
        assert threads() - before == set()
        assert raised.value.__traceback__ is not None


def test_released_client_accepts_no_call(broker, topic):
    made = PlainProducer(KafkaSpec(broker.bootstrap, topic), None, idempotent=True)
    client = made.client
    if isinstance(client, ArrayProducer):
        made.close()
        with pytest.raises(KafkaException) as raised:
            client.poll(0)
        assert raised.value.args[0].code() == KafkaError._DESTROY


def test_leader_of_the_partition_is_connected_immediately(broker, topic):
    made = TransactionalProducer(KafkaSpec(broker.bootstrap, topic), f"test/{uuid.uuid4()}")
    if isinstance(made.client, ArrayProducer):
        made.client.meet_leader(0, SECONDS)
        made.client.poll(0)
        assert made._connections.up
    made.close()


def test_a_partition_that_is_not_there_is_not_waited_for(broker, topic):
    made = TransactionalProducer(KafkaSpec(broker.bootstrap, topic), f"test/{uuid.uuid4()}", partition=1_000)
    made.init(SECONDS)
    assert made.proven_clean()
    made.close()


def test_functions_of_another_major_version_are_not_used(monkeypatch):
    assert librdkafka.library() is not None
    monkeypatch.setattr(librdkafka, "libversion", lambda: ("3.0.0", 0x030000FF))
    assert librdkafka.library.__wrapped__() is None
