"""A broker that stalls or restarts at each step of a load: one attempt waits until it is back.

The timeouts keep the ratios of the defaults. The broker stalls for six request timeouts, half of the retry timeout.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Barrier, Thread, Timer, current_thread
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from spark_cas.core.errors import StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append import atomic_append, writer
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import await_visible
from spark_cas.log.kafka.client import kept_clients, sending
from spark_cas.log.kafka.client.clients import TransactionalProducer, reader
from spark_cas.log.kafka.topic import topics
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.atomic_load import Spool, in_one_transaction
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.whole import everything
from tests.kafka.clients import SECONDS, append, committed_values, create_topic
from tests.kafka.faulted import JOB, all_at_once, by_writer, for_a_while, planned_writer, run_once, spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.producers import send, transactional_producer
from tests.kafka.proxy.rules import DELAY_SECONDS, Fault, Moment
from tests.long import full
from tests.support.loads import LIMITS, batches_of, rows_of
from tests.support.writing import table_of, values_in
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROWS = rows_of(10, 0)
WHOLE_ROWS = rows_of(10, 0, 1)
REQUEST_SECONDS = 1.5
STANDS_STILL_SECONDS = 6 * REQUEST_SECONDS
RESTART_REQUEST_SECONDS = 8.0
"""A broker takes some seconds to restart, and longer on a busy machine."""
IS_GONE_SECONDS = 2.0
STRIKES = 3

STEPS: dict[str, tuple[Any, str]] = {
    "plan": (KafkaLog, "bounds_of"),
    "making the registry": (topics, "create_topic"),
    "recording the plan": (KafkaLog, "record_plan"),
    "claim": (Fence, "put_up"),
    "sending": (sending, "await_delivery"),
    "ledger": (TransactionalProducer, "adding"),
    "commit": (TransactionalProducer, "commit"),
    "visibility": (writer, "await_visible"),
    "completion": (KafkaLog, "record_completion"),
}
"""By step, the function before whose first call the broker stops. The step begins with this call."""


@contextmanager
def struck(monkeypatch, place: tuple[Any, str], strike: Callable[[], object]):
    """Call ``strike`` before this thread's first call of a step's function, and require that call."""
    home, name = place
    function, calls, thread = getattr(home, name), list[str](), current_thread()

    def first_struck(*arguments, **named):
        if current_thread() is thread:
            calls.append(name)
            if len(calls) == 1:
                strike()
        return function(*arguments, **named)

    monkeypatch.setattr(home, name, first_struck)
    yield
    assert calls, f"{name} was not called"


def test_suspended_broker_is_waited_for_at_each_step(broker, monkeypatch):
    """There is one load for each step. The broker stops when every load is just before its own step."""
    threads = list[Thread]()
    stop = for_a_while(broker.freeze, broker.thaw, STANDS_STILL_SECONDS, threads)
    all_there = Barrier(len(STEPS), action=stop)
    topics = {step: create_topic(broker.bootstrap) for step in STEPS}

    def load(step):
        spec = spec_of(broker.bootstrap, topics[step], request_seconds=REQUEST_SECONDS)
        try:
            with struck(monkeypatch, STEPS[step], lambda: all_there.wait(SECONDS)):
                run_once(spec, ROWS)
        except BaseException:
            all_there.abort()
            raise
        with KafkaLog(spec) as log:
            assert log.completion(JOB) is not None
        return committed_values(broker.bootstrap, topics[step])

    try:
        found = all_at_once(load, STEPS)
    finally:
        for thread in threads:
            thread.join()
    assert dict(zip(STEPS, found, strict=True)) == dict.fromkeys(STEPS, ROWS[0])


WHOLE_STEPS: dict[str, tuple[Any, str]] = {
    "claim": (Fence, "put_up"),
    "sending": (sending, "await_delivery"),
    "ledger": (TransactionalProducer, "adding"),
    "commit": (TransactionalProducer, "commit"),
    "visibility": (atomic_append, "await_visible"),
}
"""The steps of an atomic load: one transaction over all partitions."""


def run_whole_once(spec, rows):
    """Run an atomic load with one attempt of its task."""
    with KafkaLog(spec) as log, Spool(batches_of(rows, 4)) as kept:
        plan = pin_plan(log, JOB, ExpectedOffsets.parse("end"), whole=True)
        append = partial(append_rows, log, plan, kept, task="run/0", limits=LIMITS)
        results = in_one_transaction(log, plan, append, fenced_retry_wait_seconds=1.0)
        complete_job(log, plan, results)


def test_atomic_load_waits_until_the_rows_of_all_its_chunks_are_visible(broker, monkeypatch):
    """The last stable offset is at the first record of the load until a broker has written the marker."""
    awaited = {}

    def waiting(admin, at, records):
        awaited[at.partition] = records
        return await_visible(admin, at, records)

    monkeypatch.setattr(atomic_append, "await_visible", waiting)
    topic = create_topic(broker.bootstrap, 2)
    run_whole_once(spec_of(broker.bootstrap, topic), WHOLE_ROWS)
    assert {at: len(records) for at, records in awaited.items()} == {at: len(rows) for at, rows in WHOLE_ROWS.items()}
    assert all(len(rows) > LIMITS.max_records for rows in WHOLE_ROWS.values())


def test_suspended_broker_is_waited_for_at_each_step_of_an_atomic_load(broker, monkeypatch):
    threads = list[Thread]()
    stop = for_a_while(broker.freeze, broker.thaw, STANDS_STILL_SECONDS, threads)
    all_there = Barrier(len(WHOLE_STEPS), action=stop)

    def load(step):
        topic = create_topic(broker.bootstrap, 2)
        spec = spec_of(broker.bootstrap, topic, request_seconds=REQUEST_SECONDS)
        try:
            with struck(monkeypatch, WHOLE_STEPS[step], lambda: all_there.wait(SECONDS)):
                run_whole_once(spec, WHOLE_ROWS)
        except BaseException:
            all_there.abort()
            raise
        with KafkaLog(spec) as log:
            return everything(log)

    try:
        found = all_at_once(load, WHOLE_STEPS)
    finally:
        for thread in threads:
            thread.join()
    assert dict(zip(WHOLE_STEPS, found, strict=True)) == dict.fromkeys(WHOLE_STEPS, WHOLE_ROWS)


@pytest.mark.full
@pytest.mark.parametrize("step", ["claim", "sending", "ledger", "commit"])
def test_a_broker_that_is_killed_under_a_load_as_a_whole_is_waited_for(broker, monkeypatch, step):
    topic, threads = create_topic(broker.bootstrap, 2), list[Thread]()
    spec = spec_of(broker.bootstrap, topic, request_seconds=RESTART_REQUEST_SECONDS)
    strike = for_a_while(broker.kill, broker.restart, IS_GONE_SECONDS, threads)
    try:
        with struck(monkeypatch, WHOLE_STEPS[step], strike):
            run_whole_once(spec, WHOLE_ROWS)
    finally:
        for thread in threads:
            thread.join()
    with KafkaLog(spec) as log:
        assert everything(log) == WHOLE_ROWS


@pytest.mark.parametrize("connected_seconds", [0.0, *full(0.3)], ids=["not yet connected", "connected"])
def test_broker_suspended_at_first_contact_is_waited_for(broker, connected_seconds):
    """A closed port fails at once. But a read or write may be planned while the broker stalls, and has to wait."""
    topic = create_topic(broker.bootstrap)
    with KafkaLog(spec_of(broker.bootstrap, topic, request_seconds=REQUEST_SECONDS)) as log:
        time.sleep(connected_seconds)
        broker.freeze()
        back = Timer(STANDS_STILL_SECONDS, broker.thaw)
        back.start()
        try:
            assert log.layout().partitions == 1
        finally:
            back.join()


def test_broker_that_reports_no_brokers_gets_a_second_request(proxied, proxied_topic):
    """A fenced broker reports no brokers. The client accepts that, and would not request metadata for minutes."""
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic, request_seconds=REQUEST_SECONDS)) as log:
        log.layout()
        proxied.proxy.add(Fault.RESET_BEFORE_REQUEST, Api.METADATA)
        fenced = proxied.proxy.add(Fault.EMPTY_METADATA, Api.METADATA, nth=2)
        assert log.layout().partitions == 1
    fenced.reached.wait(0)


def test_requests_use_a_new_client_if_theirs_has_no_brokers(proxied, proxied_topic):
    """With the other strategy, the client returns to its bootstrap servers in 19 of 20 cases."""
    spec = spec_of(
        proxied.bootstrap, proxied_topic, request_seconds=REQUEST_SECONDS, metadata_recovery_strategy="none"
    )
    with KafkaLog(spec) as log:
        log.layout()
        fenced = proxied.proxy.add(Fault.EMPTY_METADATA, Api.METADATA)
        log.layout()
        fenced.reached.wait(0)
        assert log.layout().partitions == 1


@pytest.mark.full
def test_reads_use_a_new_client_if_theirs_has_no_brokers(proxied, proxied_topic):
    spec = spec_of(proxied.bootstrap, proxied_topic, request_seconds=REQUEST_SECONDS / 2, queued_min_messages="1")
    values = [f"{number:01000}" for number in range(12_000)]  # so many that the reader returns them in several parts
    with KafkaLog(spec) as log:
        planned_writer(log).must_append(*values)
        found, fenced = list[str](), list[Moment]()
        for _, records in log.read(0, log.bounds(0).range):
            found += [each.decode() for each in records["value"].to_pylist()]
            # The client returns to its bootstrap servers in only half of the cases.
            if len(fenced) < STRIKES and all(each.has_come for each in fenced):
                proxied.proxy.add(Fault.RESET_BEFORE_REQUEST, Api.FETCH)
                fenced.append(proxied.proxy.add(Fault.EMPTY_METADATA, Api.METADATA, times=2).reached)
    assert len(fenced) == STRIKES
    assert found == values


class Deaf(Consumer):
    """A consumer without a broker to connect to, as sometimes in the test above. It never returns a record."""

    def poll(self, timeout=-1):
        time.sleep(timeout)


def test_records_are_read_by_another_client_once_theirs_gives_nothing(broker, topic, monkeypatch):
    spec = spec_of(broker.bootstrap, topic, request_seconds=REQUEST_SECONDS / 2)
    with KafkaLog(spec) as log:
        planned_writer(log).must_append("a")
        deaf = [Deaf({"bootstrap.servers": broker.bootstrap, "group.id": "deaf"})]

        def open_one(*given, **more):
            return deaf.pop() if deaf else reader(*given, **more)

        monkeypatch.setattr(kept_clients, "reader", open_one)
        assert values_in(log, 0) == ["a"]
    assert not deaf


@pytest.mark.full
def test_slow_read_of_aborted_records_may_exceed_the_timeout(proxied, proxied_topic):
    fetches = 8
    for _ in range(fetches):
        append(proxied.direct, proxied_topic, "aborted".ljust(40_000), commit=False)
    append(proxied.direct, proxied_topic, "committed")
    spec = spec_of(proxied.bootstrap, proxied_topic, message_timeout_ms="2000", fetch_message_max_bytes="50000")
    with KafkaLog(spec) as log, ThreadPoolExecutor(1) as thread:
        log.bounds(0)
        slow = [proxied.proxy.add(Fault.HOLD_REQUEST, Api.FETCH, nth=1 + nth) for nth in range(fetches)]
        reading = thread.submit(values_in, log, 0)
        for each in slow:
            each.reached.wait(10)
            time.sleep(1.5 * spec.patience_seconds / fetches)
            each.release()
        assert reading.result(SECONDS) == ["committed"]


SLOW_FETCHES = 5
"""The number of fetches that read the aborted transaction. With their delays, they take longer than the deadline."""


def abort_large(address, topic):
    """Abort one transaction whose batches are fetched one at a time."""
    other = transactional_producer(address, f"other-{topic}", batch_size=1_000_000)
    other.begin_transaction()
    assert send(other, topic, ["aborted".ljust(800_000)] * SLOW_FETCHES) == [None] * SLOW_FETCHES
    other.abort_transaction(SECONDS)


@pytest.fixture
def aborted_transaction(proxied, proxied_topic):
    """A partition that holds one aborted transaction of another producer, larger than one fetch."""
    abort_large(proxied.direct, proxied_topic)
    return spec_of(proxied.bootstrap, proxied_topic, message_timeout_ms="2000", fetch_max_bytes="1000000")


def test_reader_passes_an_aborted_transaction_that_takes_longer_than_the_deadline(proxied, aborted_transaction):
    append(proxied.direct, aborted_transaction.topic, "committed")
    with KafkaLog(aborted_transaction) as log:
        log.bounds(0)
        slow = proxied.proxy.add(Fault.DELAY_REQUEST, Api.FETCH, times=None)
        assert values_in(log, 0) == ["committed"]
    assert slow.borrow * DELAY_SECONDS > aborted_transaction.patience_seconds


def test_slow_reader_does_not_double_its_fetches_in_an_aborted_transaction(proxied, aborted_transaction):
    """Otherwise, a response becomes so large that a slow network exceeds the request timeout."""
    at = TopicPartition(aborted_transaction.topic, 0, 0)
    spec = spec_of(proxied.bootstrap, at.topic)  # with the default of ``fetch.max.bytes``
    consumer, traffic = reader(spec, scanning=True, statistics=lambda _: None), proxied.proxy.traffic
    traffic.clear()
    consumer.assign([at])
    wait_until(lambda: consumer.poll(1) is not None, SECONDS, lambda: "the end of the partition is not reported")
    consumer.close()
    assert traffic.requests[Api.FETCH] >= SLOW_FETCHES


@pytest.mark.full
def test_claim_passes_an_aborted_transaction_that_takes_longer_than_the_deadline(proxied, aborted_transaction):
    with KafkaLog(aborted_transaction) as log:
        slow = proxied.proxy.add(Fault.DELAY_REQUEST, Api.FETCH, times=None)
        job = planned_writer(log, expected='{"0": 0}')
        assert slow.borrow * DELAY_SECONDS > aborted_transaction.patience_seconds
        proxied.proxy.clear()
        job.must_append("a")
    assert committed_values(proxied.direct, aborted_transaction.topic) == ["a"]


def test_append_passes_an_aborted_transaction_that_takes_longer_than_the_deadline(proxied, aborted_transaction):
    with KafkaLog(aborted_transaction) as log:
        job = planned_writer(log)
        abort_large(proxied.direct, aborted_transaction.topic)
        slow = proxied.proxy.add(Fault.DELAY_REQUEST, Api.FETCH, times=None)
        job.must_append("a")
    assert slow.borrow * DELAY_SECONDS > aborted_transaction.patience_seconds
    assert committed_values(proxied.direct, aborted_transaction.topic) == ["a"]


def test_claim_uses_a_new_client_if_its_own_has_no_brokers(proxied, proxied_topic):
    """A disconnected client that reads metadata without brokers drops its broker, and has none left to connect to."""
    spec = spec_of(proxied.bootstrap, proxied_topic, request_seconds=REQUEST_SECONDS)
    cut_off = proxied.proxy.add(Fault.RESET_BEFORE_REQUEST, Api.INIT_PRODUCER_ID)
    fenced = proxied.proxy.add(Fault.EMPTY_METADATA, Api.METADATA, nth=2, times=2)
    producer = TransactionalProducer(spec, spec.id_of_partition(0, None))
    try:
        producer.init(spec.open_transaction_seconds)
    finally:
        producer.close()
    cut_off.reached.wait(0)
    fenced.reached.wait(0)


def test_appends_use_a_new_client_if_theirs_has_no_brokers(proxied, proxied_topic):
    spec = spec_of(proxied.bootstrap, proxied_topic, request_seconds=REQUEST_SECONDS)
    # Wait for the records until the retry timeout, and not only until the transaction timeout.
    spec = replace(spec, transaction_timeout_ms=60_000)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append("a")
        elsewhere = proxied.proxy.add(
            Fault.FAIL_RESPONSE, Api.PRODUCE, where=by_writer(spec), error=KafkaError.NOT_LEADER_FOR_PARTITION
        )
        fenced = proxied.proxy.add(Fault.EMPTY_METADATA, Api.METADATA)
        job.must_append("b")
    elsewhere.reached.wait(0)
    fenced.reached.wait(0)
    assert committed_values(proxied.direct, proxied_topic) == ["a", "b"]


@pytest.mark.parametrize("step", [*full("sending"), "commit"])
def test_a_broker_that_is_killed_and_started_again_is_waited_for(broker, monkeypatch, step):
    topic, threads = create_topic(broker.bootstrap), list[Thread]()
    spec = spec_of(broker.bootstrap, topic, request_seconds=RESTART_REQUEST_SECONDS)
    strike = for_a_while(broker.kill, broker.restart, IS_GONE_SECONDS, threads)
    try:
        with struck(monkeypatch, STEPS[step], strike):
            run_once(spec, ROWS)
    finally:
        for thread in threads:
            thread.join()
    assert committed_values(broker.bootstrap, topic) == ROWS[0]


def test_long_stall_is_reported_and_nothing_is_visible(broker, monkeypatch, caplog):
    topic = create_topic(broker.bootstrap)
    spec = spec_of(broker.bootstrap, topic, request_seconds=REQUEST_SECONDS, message_timeout_ms="9000")
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append("a")
        broker.freeze()
        try:
            began = time.monotonic()
            with pytest.raises(StorageError, match="No row of this chunk is in the log"):
                job.append(table_of("bc"))
            assert time.monotonic() - began < 3 * spec.patience_seconds
        finally:
            broker.thaw()
    assert any("Waiting since" in record.getMessage() for record in caplog.records)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        assert values_in(log, 0) == ["a"]


def test_read_resumes_with_the_broker(broker):
    topic, threads = create_topic(broker.bootstrap), list[Thread]()
    spec = spec_of(broker.bootstrap, topic, request_seconds=REQUEST_SECONDS, queued_min_messages="1")
    values = [f"{number:01000}" for number in range(20_000)]
    with KafkaLog(spec) as log:
        planned_writer(log).must_append(*values)
        bounds = log.bounds(0)
        strike = for_a_while(broker.freeze, broker.thaw, STANDS_STILL_SECONDS, threads)
        found = 0
        for _, records in log.read(0, bounds.range):
            if not found:
                strike()
            found += records.num_rows
    threads[0].join(SECONDS)
    assert found == len(values)
