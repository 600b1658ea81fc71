"""Describe the brokers and topics of a log for `spark-cas doctor`: their weak settings and open transactions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from confluent_kafka.admin import TopicDescription

from spark_cas.core.errors import LogNotFoundError, OptionError
from spark_cas.core.finding import Finding, Problem, Severity
from spark_cas.core.open_transaction import OpenTransaction
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.error_text import NotPermittedError
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.broker_settings import alive_brokers, broker_settings
from spark_cas.log.kafka.topic.open_transactions import open_transactions
from spark_cas.log.kafka.topic.topic_settings import describe, topic_settings
from spark_cas.log.kafka.topic.weak_settings import (
    broker_findings,
    leader_of,
    loss_findings,
    registry_findings,
    removal_findings,
    replica_findings,
    transaction_findings,
    with_brokers,
)

_TRANSACTIONS = "__transaction_state"
_INTERNAL = (_TRANSACTIONS, "__consumer_offsets")


def cluster_findings(admin: Admin, spec: KafkaSpec) -> Iterator[Finding]:
    """Yield findings on the settings and replicas of all brokers and topics that a log depends on.

    Raises:
        LogNotFoundError, StorageError.
    """
    for each in _findings(admin, spec):
        yield replace(each, fix=with_brokers(each.fix, spec))


def _findings(admin: Admin, spec: KafkaSpec) -> Iterator[Finding]:
    brokers = alive_brokers(admin)
    for topic in (spec.topic, spec.registry_topic, spec.layouts_topic, *_INTERNAL):
        yield from _topic_findings(admin, spec, topic, brokers)
    for broker in brokers:
        values = broker_settings(admin, broker)
        if values:
            yield from broker_findings(broker, values)
            yield from transaction_findings(broker, values)
        else:
            yield _unreadable(f"broker {broker}", "DescribeConfigs on the cluster")


def transactions_of(admin: Admin, spec: KafkaSpec) -> tuple[OpenTransaction, ...]:
    """Return the open transactions in a log and its registry, and those of its own writers.

    Raises:
        OptionError: kafka-python is not installed, or does not support a setting of the connection.
        StorageError: The brokers did not answer, or a right is missing.
        LogNotFoundError: The topic does not exist.
    """
    led = {}
    for topic in (spec.topic, spec.registry_topic, spec.layouts_topic):
        try:
            partitions = describe(admin, topic).partitions
        except (LogNotFoundError, NotPermittedError):
            if topic == spec.topic:
                raise
            continue
        led[topic] = [each.id for each in partitions if leader_of(each) >= 0]
    limits = [broker_settings(admin, broker).get("transaction.max.timeout.ms") for broker in alive_brokers(admin)]
    known = [int(each) for each in limits if each is not None]
    return open_transactions(spec, led, max(known) if known and len(known) == len(limits) else None)


def require_coordinators(admin: Admin) -> None:
    """Raise OptionError if a transaction may be missing from the list because its coordinator is not available."""
    try:
        partitions = describe(admin, _TRANSACTIONS).partitions
    except NotPermittedError:
        problem = f"this user may not describe the topic {_TRANSACTIONS}. Grant the ACL Describe on it"
    else:
        if all(leader_of(each) >= 0 for each in partitions):
            return
        problem = f"a partition of {_TRANSACTIONS} has no leader. Start its brokers"
    raise OptionError(
        f"the coordinator of the transaction may be unavailable: {problem}, then try again. Nothing was changed."
    )


def _topic_findings(admin: Admin, spec: KafkaSpec, topic: str, brokers: Sequence[int]) -> Iterator[Finding]:
    try:
        description: TopicDescription = describe(admin, topic)
        settings = topic_settings(admin, topic)
    except LogNotFoundError:
        if topic == spec.topic:
            raise
        return  # the first load creates it
    except NotPermittedError:
        yield _unreadable(f"topic {topic}", f"Describe on topic {topic}")
        return
    yield from replica_findings(description, settings, brokers)
    if settings is None:
        yield _unreadable(f"topic {topic}", f"DescribeConfigs on topic {topic}")
        return
    yield from loss_findings(description, settings)
    if topic == spec.topic:
        yield from removal_findings(topic, settings)
    elif topic not in _INTERNAL:
        yield from registry_findings(topic, settings)


def _unreadable(subject: str, right: str) -> Finding:
    meaning = f"this user may not read the settings of {subject}, so they were not checked"
    return Finding(Problem.SETTINGS_UNREADABLE, Severity.INFO, subject, meaning, f"grant the ACL {right}")
