"""A process that waits for a stalled broker sleeps: the tests measure its processor time."""

import os
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Producer

from spark_cas.core.chunks import Chunk
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import AT_LEAST_ONCE, IDEMPOTENT
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append import at_least_once
from spark_cas.log.kafka.client import sending
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import pin_plan
from tests.kafka.clients import SECONDS, create_topic
from tests.support.writing import TIME_MS, JobWriter, table_of
from tools.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

RECORDS = 500_000
SMALL_REQUESTS = (("batch.size", "100000"),)
"""Five such requests fit the buffers of a connection.

While a request is partly written, the client does not check for more records.
"""
STANDS_STILL_SECONDS = 3.0
AT_REST_SECONDS = 0.3
WAITING_SECONDS = 0.6
"""The limit of processor time while records are in flight: a fifth of a core. A busy loop uses a whole core.

Once a second, the client checks for expired records. That takes 0.06 s in total, and longer on a busy machine.
"""


def processor_seconds():
    """Return the processor time of each thread, so that a failing test names the thread that does not sleep."""
    spent = {}
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            name, _, rest = (thread / "stat").read_text().rpartition(")")
            user, system = rest.split()[11:13]
            spent[f"{name})"] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return Counter(spent)


@contextmanager
def standing_still(broker: KafkaBroker):
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()
        broker.node(1).wait_until_alive()


def spent_in(seconds):
    """Return the processor time that the threads of this process use while its main thread sleeps."""
    before = processor_seconds()
    time.sleep(seconds)
    return processor_seconds() - before


@pytest.fixture(scope="module")
def many():
    return table_of([f"{number:0100}" for number in range(RECORDS)])


def spent_while_sending(broker, monkeypatch, module, append):
    """Return the processor time of each thread while records are in flight to a stalled broker."""
    wait, under_way = module.await_delivery, Event()

    def waiting(producer, *arguments, until):
        def reported():
            if len(producer.client) < RECORDS:
                under_way.set()
            return until()

        return wait(producer, *arguments, until=reported)

    monkeypatch.setattr(module, "await_delivery", waiting)
    outcomes = []
    sender = Thread(target=lambda: outcomes.append(append()), daemon=True)
    sender.start()
    assert under_way.wait(SECONDS)
    with standing_still(broker):
        # The earlier records arrive, and the client notices that no further response does.
        time.sleep(1)
        spent = spent_in(STANDS_STILL_SECONDS)
    sender.join(SECONDS)
    assert len(outcomes) == 1, "the append completes after the broker resumes"
    return spent


def test_a_writer_sleeps_while_its_records_are_under_way(broker, monkeypatch, many):
    topic = create_topic(broker.bootstrap)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic, client_options=SMALL_REQUESTS)) as log:
        job = JobWriter(log, pin_plan(log, "job", ExpectedOffsets("end")))
        job.must_append("first")  # so that the measured time is that of the records alone
        spent = spent_while_sending(broker, monkeypatch, sending, lambda: job.append(many))
        assert log.bounds(0).end_offset > RECORDS
    assert spent.total() < WAITING_SECONDS, spent


@pytest.mark.full
@pytest.mark.parametrize("guarantee", [IDEMPOTENT, AT_LEAST_ONCE])
def test_so_does_a_blind_one(broker, monkeypatch, many, guarantee):
    topic = create_topic(broker.bootstrap)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic, client_options=SMALL_REQUESTS)) as log:
        layout = log.layout()
        chunk = Chunk(many, RECORDS, "", complete=False, task="run/0", time_ms=TIME_MS)
        spent = spent_while_sending(
            broker, monkeypatch, at_least_once, lambda: log.append_blind(0, layout, chunk, guarantee)
        )
    assert spent.total() < WAITING_SECONDS, spent


def test_an_open_log_rests(broker):
    topic = create_topic(broker.bootstrap)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log:
        job = JobWriter(log, pin_plan(log, "job", ExpectedOffsets("end")))
        job.must_append("a")
        time.sleep(1)
        spent = spent_in(STANDS_STILL_SECONDS)
    assert spent.total() < AT_REST_SECONDS, spent


@pytest.mark.full
def test_the_client_is_still_kept_awake_by_records_that_it_may_not_send(broker):
    """See decision 0009. If this test fails, the client is fixed, and records may linger and be flushed as usual."""
    topic = create_topic(broker.bootstrap)
    client = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1})
    client.produce(topic, b"so that it is connected", partition=0)
    assert client.flush(SECONDS) == 0
    with standing_still(broker):
        for _ in range(100_000):
            client.produce(topic, b"v" * 100, partition=0)
        time.sleep(1)
        spent = spent_in(2)
    client.purge()
    assert spent.total() > 0.3
