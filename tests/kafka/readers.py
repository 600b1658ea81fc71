"""Ordinary clients next to a log: a reader of committed records, and writers that do not cooperate."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from tests.kafka.clients import SECONDS, offset_of

ReadRecords = list[tuple[int, str]]
"""Offsets and values, in the order in which a reader got them."""


@contextmanager
def reading(address: str, topic: str) -> Iterator[ReadRecords]:
    """Read the committed records of partition 0 until the context ends and no more records arrive."""
    seen: ReadRecords = []
    stop = Event()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read() -> None:
        quiet = 0
        # After the last record, poll ten times more, so that records committed by now can arrive.
        while not stop.is_set() or quiet < 10:
            message = consumer.poll(0.1)
            quiet = quiet + 1 if message is None else 0
            if message is not None and message.error() is None:
                seen.append((offset_of(message), (message.value() or b"").decode()))

    thread = Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(SECONDS)
        consumer.close()


@contextmanager
def barging_in(address: str, topic: str, pause_seconds: float) -> Iterator[list[str]]:
    """An ordinary producer that appends to partition 0 at random times. Yields the acknowledged values."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    acknowledged: list[str] = []
    stop = Event()

    def write() -> None:
        at = 0
        while not stop.wait(random.uniform(0, 2 * pause_seconds)):
            value = f"foreign-{at}"
            at += 1
            producer.produce(topic, value, partition=0)
            assert producer.flush(SECONDS) == 0
            acknowledged.append(value)

    yield from _while_running(write, stop, acknowledged)


@contextmanager
def only_aborting(address: str, topic: str, transactional_id: str) -> Iterator[list[str]]:
    """Another system that writes to partition 0 in one transaction after another, and aborts each of them."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(SECONDS)
    aborted: list[str] = []
    stop = Event()

    def write() -> None:
        while not stop.wait(0.02):
            producer.begin_transaction()
            producer.produce(topic, "aborted", partition=0)
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
            aborted.append("aborted")

    yield from _while_running(write, stop, aborted)


def open_transaction(address: str, topic: str, transactional_id: str) -> Producer:
    """Return a producer of another system whose open transaction has a record in partition 0."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, "undecided", partition=0)
    assert producer.flush(SECONDS) == 0
    return producer


def _while_running(write, stop: Event, result: list[str]) -> Iterator[list[str]]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            write()
        except (AssertionError, KafkaException) as failure:
            failures.append(failure)

    thread = Thread(target=run)
    thread.start()
    try:
        yield result
    finally:
        stop.set()
        thread.join(SECONDS)
    assert not failures, failures


def wait_for(happened, what: str, seconds: float = SECONDS) -> None:
    """Wait until ``happened()`` is true. Raises TimeoutError after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)
