"""Topics with open transactions, and `spark-cas doctor` on them."""

import os
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Producer

from spark_cas.log import clock
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, create_topic
from tests.kafka.raw_records import RawRecord, append_raw
from tests.support.planted_problems import report_on
from tests.support.programs import run_cli

OF_BROKER = {
    "OFFSETS_RETENTION": {"offsets.retention.minutes": "1440"},
    "PARTITION_VERIFICATION": {"transaction.partition.verification.enable": "false"},
    "TRANSACTIONAL_ID_EXPIRATION": {"transactional.id.expiration.ms": "86400000"},
    "TRANSACTION_TIMEOUT": {"transaction.max.timeout.ms": "600000"},
}
"""Broker settings that weaken a promise, by problem."""


@dataclass
class Place:
    """A new topic with its own registry."""

    spec: KafkaSpec

    @property
    def arguments(self):
        brokers = ["--bootstrap-servers", self.spec.bootstrap_servers, "--topic", self.spec.topic]
        return [*brokers, "--log-option", f"idPrefix={self.spec.prefix}"]

    def report(self):
        return report_on(*self.arguments)

    def abort(self, *arguments):
        return run_cli("doctor", *self.arguments, "--abort", *arguments)

    def transactions(self):
        with KafkaLog(self.spec) as log:
            return log.open_transactions()


def place_on(bootstrap, **config):
    topic = create_topic(bootstrap, 1, **config)
    return Place(KafkaSpec(bootstrap, topic, topic))


class Watch:
    """The time that doctor watches a transaction, which passes at once."""

    def __init__(self):
        self.seconds = 0.0
        self.during = lambda: None

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds
        self.during()


@contextmanager
def open_transaction(spec, transactional_id, timeout_ms=60_000, partition=0):
    """A producer with an open transaction, which has one record."""
    producer = Producer(
        {
            "bootstrap.servers": spec.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(spec.topic, "open", partition=partition)
    assert producer.flush(SECONDS) == 0
    yield producer


def hang(spec, producer_id=None, epoch=0, timestamp_ms=None):
    """Append a record in a transaction that no coordinator knows, and return the producer id."""
    if producer_id is None:
        producer_id = int.from_bytes(os.urandom(4))
    record = RawRecord(timestamp_ms=clock.now_ms() if timestamp_ms is None else timestamp_ms)
    append_raw(spec.bootstrap_servers, spec.topic, record, open_for=producer_id, epoch=epoch)
    return producer_id


def exact(transaction):
    ids = ["--producer-id", f"{transaction.producer_id}", "--producer-epoch", f"{transaction.producer_epoch}"]
    return [*ids, "--partition", "0"]
