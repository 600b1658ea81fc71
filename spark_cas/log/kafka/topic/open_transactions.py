"""List the open transactions of topics, and end one that no coordinator will end (KIP-664).

librdkafka (2.16) has none of these requests. kafka-python has all of them.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from spark_cas.core.errors import LogNotFoundError, OptionError, StorageError, UnknownOutcomeError
from spark_cas.core.finding import HeldPartition, OpenTransaction
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import NotPermittedError
from spark_cas.log.kafka.client.configuration import settings_of
from spark_cas.log.kafka.settings.client_settings import Client
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import alive_brokers, broker_settings, describe, leader_of

# ruff: noqa: PLC0415 - kafka-python is optional, and only doctor needs it

_ONGOING = "Ongoing"
_OPEN_STATES = (_ONGOING, "PrepareCommit", "PrepareAbort")
_UNCHANGED = "Nothing was changed."
_TRANSACTIONS = "__transaction_state"


_Client = Any
"""kafka-python's admin client, which has no types."""
_Description = Any
"""The description of a transaction by its coordinator."""


class _Abort(NamedTuple):
    """The marker of an aborted transaction. kafka-python exports no class for it."""

    topic_partition: object
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def open_transactions(admin: Admin, spec: KafkaSpec) -> tuple[OpenTransaction, ...]:
    """Return the open transactions in a log and its registry, and those of its own writers.

    Raises:
        OptionError: kafka-python is not installed, or cannot use a setting of the connection.
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
    longest_ms = max(known) if known and len(known) == len(limits) else None
    with _client(spec, "listing open transactions", _UNCHANGED) as client:
        result = _listed_once(client, spec, led, longest_ms)
        if any(each.orphaned for each in result):
            # One that ended between the requests is not listed either. So is one whose coordinator has written the
            # marker to that partition. In both cases, the second list does not have the same first record.
            first = {place for each in result if each.orphaned for place in _places(each)}
            second = _listed_once(client, spec, led, longest_ms)
            result = [each for each in second if not each.orphaned]
            for each in second:
                kept = tuple(place for *ids, place in _places(each) if (*ids, place) in first)
                if each.orphaned and kept:
                    result.append(replace(each, partitions=kept))
    return tuple(sorted(result, key=lambda each: each.since_ms or 0))


def require_available_coordinators(admin: Admin) -> None:
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


def write_abort_marker(spec: KafkaSpec, transaction: OpenTransaction, partition: int) -> None:
    """Write an abort marker for a hanging transaction to a partition of the log.

    The leader rejects it if the producer has a newer epoch there. Raises UnknownOutcomeError if the brokers did not
    confirm the marker, OptionError, StorageError.
    """
    existing = transaction.at(spec.topic, partition)
    epoch = 0 if existing is None else max(0, existing.coordinator_epoch)
    unknown = "The marker may have been written. Run spark-cas doctor to see whether the transaction is still open."
    with _client(spec, "aborting a transaction", unknown) as client:
        from kafka import TopicPartition

        at = TopicPartition(spec.topic, partition)
        client.abort_transaction(_Abort(at, transaction.producer_id, transaction.producer_epoch, epoch))


def _listed_once(
    client: _Client, spec: KafkaSpec, led: Mapping[str, Sequence[int]], longest_ms: int | None
) -> list[OpenTransaction]:
    open_by_producer = _open_by_producer(client, led)
    listed = _listed(client, spec, {each for each, _ in open_by_producer})
    by_id = {each.producer_id: (name, each) for name, each in listed.items()}
    result = []
    # A coordinator knows the newest epoch of a producer only. An older one is a transaction that it has lost.
    for (producer_id, epoch), places in sorted(open_by_producer.items(), reverse=True):
        known: list[HeldPartition] = []
        if producer_id in by_id and _is_of_epoch(by_id[producer_id][1], epoch):
            name, described = by_id[producer_id]
            named = {(at.topic, at.partition) for at in described.topic_partitions}
            known = [each for each in places if (each.topic, each.partition) in named]
            if known:
                result.append(_known(spec, name, described, epoch, known))
                del by_id[producer_id]
        unknown = tuple(each for each in places if each not in known)
        if unknown:
            result.append(
                OpenTransaction(
                    producer_id,
                    epoch,
                    "",
                    own=False,
                    coordinator=None,
                    partitions=unknown,
                    since_ms=None,
                    timeout_ms=longest_ms,
                    orphaned=True,
                )
            )
    for name, each in by_id.values():
        if _is_own(spec, name):
            # It has no record in the partitions, such as a transaction that only commits ledger entries.
            own = [HeldPartition(at.topic, at.partition, None) for at in each.topic_partitions]
            own.sort(key=lambda place: (place.topic, place.partition))
            result.append(_known(spec, name, each, each.producer_epoch, own))
    return result


def _known(
    spec: KafkaSpec, name: str, described: _Description, epoch: int, places: Sequence[HeldPartition]
) -> OpenTransaction:
    """Return a transaction that its coordinator lists."""
    began_ms = described.transaction_start_time_ms
    return OpenTransaction(
        described.producer_id,
        epoch,
        name,
        own=_is_own(spec, name),
        coordinator=described.coordinator_id,
        partitions=tuple(places),
        since_ms=began_ms if began_ms >= 0 else None,
        timeout_ms=described.transaction_timeout_ms,
    )


def _is_of_epoch(described: _Description, epoch: int) -> bool:
    """Return whether a coordinator describes the transaction of this epoch.

    When a transaction ends, its coordinator may have increased the epoch already (KIP-890).
    """
    known: int = described.producer_epoch
    return known == epoch or (described.state != _ONGOING and known == epoch + 1)


def _places(transaction: OpenTransaction) -> Iterator[tuple[int, int, HeldPartition]]:
    for each in transaction.partitions:
        yield transaction.producer_id, transaction.producer_epoch, each


@contextmanager
def _client(spec: KafkaSpec, doing: str, outcome: str) -> Iterator[_Client]:
    """Open kafka-python's admin client, and translate its errors. The outcome is that of a failed request."""
    try:
        from kafka import KafkaAdminClient
        from kafka.errors import AuthorizationError, KafkaError
    except ImportError:
        raise OptionError(
            f"{doing} needs the package kafka-python, because librdkafka lacks these requests. Install it: "
            f"pip install 'spark-cas[doctor]'."
        ) from None
    from spark_cas.log.kafka.client.kafka_python import kafka_python_settings

    settings = kafka_python_settings(settings_of(spec, Client.ADMIN))
    # At the level DEBUG it logs its settings, and with them the password.
    logger = logging.getLogger("kafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    connected = False
    try:
        client = KafkaAdminClient(**settings)
        connected = True
        try:
            yield client
        finally:
            client.close()
    except AuthorizationError:
        raise StorageError(
            f"{doing}: this user lacks an ACL. A list needs Read on the topic and Describe on the transactional ids, "
            f"and an abort needs Alter on the cluster. Nothing was changed."
        ) from None
    except (KafkaError, OSError, ValueError) as error:
        # Without the text of the error, which may contain settings.
        kind = UnknownOutcomeError if connected and outcome != _UNCHANGED else StorageError
        raise kind(
            f"{doing}: the brokers rejected the request or did not answer ({type(error).__name__}). "
            f"{outcome if connected else _UNCHANGED} Check that all brokers run, with Kafka 3.0 or newer."
        ) from None
    finally:
        logger.setLevel(level)


def _open_by_producer(
    client: _Client, led: Mapping[str, Sequence[int]]
) -> dict[tuple[int, int], list[HeldPartition]]:
    """Return the partitions of open transactions by producer id and epoch."""
    from kafka import TopicPartition

    ats = [TopicPartition(topic, partition) for topic, partitions in led.items() for partition in partitions]
    result: dict[tuple[int, int], list[HeldPartition]] = defaultdict(list)
    described = client.describe_producers(ats)
    for at in sorted(described, key=lambda each: (each.topic, each.partition)):
        for each in described[at].active_producers:
            if each.current_transaction_start_offset >= 0:
                start = each.current_transaction_start_offset
                place = HeldPartition(at.topic, at.partition, start, each.coordinator_epoch)
                result[each.producer_id, each.producer_epoch].append(place)
    return result


def _listed(client: _Client, spec: KafkaSpec, producer_ids: set[int]) -> dict[str, _Description]:
    """Return the open transactions of these producers and of the log's own writers, by transactional id."""
    from kafka.errors import TransactionalIdNotFoundError

    result = {}
    for listings in client.list_transactions(state_filters=_OPEN_STATES).values():
        for each in listings:
            name = each.transactional_id
            if each.producer_id in producer_ids or _is_own(spec, name):
                try:
                    described = client.describe_transactions([name])[name]
                except TransactionalIdNotFoundError:
                    continue  # it ended meanwhile, and its id expired
                if described.state in _OPEN_STATES:
                    result[name] = described
    return result


def _is_own(spec: KafkaSpec, transactional_id: str) -> bool:
    return transactional_id.startswith(f"{spec.prefix}/{spec.topic}/")
