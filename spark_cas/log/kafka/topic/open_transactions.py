"""List the open transactions of topics, and end one that no coordinator will end (KIP-664).

librdkafka (2.16) has none of these requests. kafka-python has all of them, and is imported only here.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from spark_cas.core.errors import OptionError, StorageError
from spark_cas.core.open_transaction import HeldPartition, OpenTransaction
from spark_cas.log.kafka.client.configuration import settings_of
from spark_cas.log.kafka.settings.client_settings import Client
from spark_cas.log.kafka.settings.kafka_python import kafka_python_settings
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

# ruff: noqa: PLC0415 - kafka-python is optional

_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class _Place(Protocol):
    topic: str
    partition: int


class _ProducerState(Protocol):
    producer_id: int
    producer_epoch: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class _PartitionState(Protocol):
    active_producers: Sequence[_ProducerState]


class _Listing(Protocol):
    transactional_id: str
    producer_id: int


class _Description(Protocol):
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: Iterable[_Place]


class _Requests(Protocol):
    """The methods of kafka-python's admin client that this module uses."""

    def describe_producers(self, partitions: Sequence[object]) -> Mapping[_Place, _PartitionState]: ...
    def list_transactions(self, *, state_filters: Sequence[str]) -> Mapping[int, Sequence[_Listing]]: ...
    def describe_transactions(self, transactional_ids: Sequence[str]) -> Mapping[str, _Description]: ...
    def abort_transaction(self, spec: object) -> None: ...


def open_transactions(
    spec: KafkaSpec, led: Mapping[str, Sequence[int]], longest_ms: int, now_ms: int
) -> tuple[OpenTransaction, ...]:
    """Return the open transactions with records in some partitions, and those of the log's own writers.

    Args:
        spec: The log.
        led: The partitions that have a leader, by topic.
        longest_ms: The longest timeout of a transaction that the brokers accept, in milliseconds.
        now_ms: The current time in milliseconds since 1970.

    Raises:
        OptionError: kafka-python is not installed, or does not support a setting of the connection.
        StorageError: The brokers did not answer, or a right is missing.
    """
    with _client(spec, "looking for open transactions") as client:
        held = _held(client, led)
        listed = _listed(client, spec, {each for each, _ in held})
        # One that ended between the two requests is not listed either. Timestamps do not show that: the producers set
        # them.
        still = (
            _held(client, led)
            if {each for each, _ in held} - {each.producer_id for each in listed.values()}
            else held
        )
    by_id = {each.producer_id: (name, each) for name, each in listed.items()}
    result = []
    for (producer_id, epoch), states in held.items():
        name, described = by_id.pop(producer_id, ("", None))
        open_now = {each for each, _ in still.get((producer_id, epoch), ())}
        places = tuple(each for each, _ in states if each in open_now)
        if not places:
            continue
        appended_ms = min(each for _, each in states)
        named = set() if described is None else {(at.topic, at.partition) for at in described.topic_partitions}
        orphaned = any((each.topic, each.partition) not in named for each in places)
        began_ms = -1 if described is None or orphaned else described.transaction_start_time_ms
        result.append(
            OpenTransaction(
                producer_id,
                epoch,
                name,
                own=_is_own(spec, name),
                coordinator=None if described is None else described.coordinator_id,
                partitions=places,
                since_ms=began_ms if began_ms >= 0 else appended_ms,
                timeout_ms=longest_ms if described is None else described.transaction_timeout_ms,
                orphaned=orphaned,
            )
        )
    for name, each in by_id.values():
        # A writer of the log without a record in the partitions, such as one that only commits ledger entries.
        places = tuple(HeldPartition(at.topic, at.partition, None) for at in each.topic_partitions)
        began_ms = each.transaction_start_time_ms
        result.append(
            OpenTransaction(
                each.producer_id,
                each.producer_epoch,
                name,
                own=_is_own(spec, name),
                coordinator=each.coordinator_id,
                partitions=tuple(sorted(places, key=lambda place: (place.topic, place.partition))),
                since_ms=began_ms if began_ms >= 0 else now_ms,
                timeout_ms=each.transaction_timeout_ms,
            )
        )
    return tuple(sorted(result, key=lambda each: each.since_ms))


def write_abort_marker(spec: KafkaSpec, transaction: OpenTransaction, partition: int) -> None:
    """Write an abort marker for a hanging transaction to a partition of the log.

    The leader rejects it unless the producer has exactly this epoch.

    Raises:
        OptionError, StorageError: As `open_transactions`.
    """
    held = next(each for each in transaction.partitions if (each.topic, each.partition) == (spec.topic, partition))
    epochs = transaction.producer_id, transaction.producer_epoch, max(0, held.coordinator_epoch)
    with _client(spec, "aborting a transaction") as client:
        from kafka import TopicPartition
        from kafka.admin._transactions import AbortTransactionSpec

        client.abort_transaction(AbortTransactionSpec(TopicPartition(spec.topic, partition), *epochs))


@contextmanager
def _client(spec: KafkaSpec, doing: str) -> Iterator[_Requests]:
    """Open kafka-python's admin client, and translate its errors."""
    try:
        from kafka import KafkaAdminClient
        from kafka.errors import AuthorizationError, KafkaError
    except ImportError:
        raise OptionError(
            f"{doing} needs the package kafka-python, because librdkafka lacks these requests. Install it: "
            f"pip install 'spark-cas[doctor]'."
        ) from None
    settings = kafka_python_settings(settings_of(spec, Client.ADMIN))
    # At the level DEBUG it logs its settings, and with them the password.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(**settings)
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
        raise StorageError(
            f"{doing}: the brokers did not answer as they should ({type(error).__name__}). Nothing was changed. "
            f"Check that they are well and at least Kafka 3.0, then try again."
        ) from None


def _held(
    client: _Requests, led: Mapping[str, Sequence[int]]
) -> dict[tuple[int, int], list[tuple[HeldPartition, int]]]:
    """Return the partitions of open transactions by producer id and epoch, each with the time of the last append."""
    from kafka import TopicPartition

    ats = [TopicPartition(topic, partition) for topic, partitions in led.items() for partition in partitions]
    result: dict[tuple[int, int], list[tuple[HeldPartition, int]]] = defaultdict(list)
    described = client.describe_producers(ats)
    for at in sorted(described, key=lambda each: (each.topic, each.partition)):
        for each in described[at].active_producers:
            if each.current_transaction_start_offset >= 0:
                start = each.current_transaction_start_offset
                place = HeldPartition(at.topic, at.partition, start, each.coordinator_epoch)
                result[each.producer_id, each.producer_epoch].append((place, each.last_timestamp))
    return result


def _listed(client: _Requests, spec: KafkaSpec, producer_ids: set[int]) -> dict[str, _Description]:
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
