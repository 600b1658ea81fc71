"""Read a topic's partitions, the principal's permissions on it, and the settings of topics and brokers."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection, TopicPartitionInfo
from confluent_kafka.admin import ConfigResource, ResourceType, TopicDescription

from spark_cas.core.errors import LogNotSharedError, StorageError
from spark_cas.log import timing
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import NOT_PERMITTED, on_topic
from spark_cas.log.kafka.client.kept_clients import ClientSet

_LEDGER_RETENTION = "offsets.retention.minutes"
_NEVER = 2**63 - 1
"""The value of a Kafka time limit that is off."""

Requested = dict[Any, "Future[Any]"]
"""Pending answers of `request_topics`: descriptions by topic, and settings by resource."""


def request_topics(admin: Admin, topics: list[str]) -> Requested:
    """Send one request for the descriptions of topics, with permissions, and one for their settings.

    `describe` and `topic_settings` use each answer once, and send later requests for one topic.
    """
    client, seconds = admin.client, admin.request_seconds
    names, resources = TopicCollection(topics), [ConfigResource(ResourceType.TOPIC, each) for each in topics]
    described = client.describe_topics(names, include_authorized_operations=True, request_timeout=seconds)
    # A copy, because the client needs its own until the answers arrive.
    return {**described, **client.describe_configs(resources, request_timeout=seconds)}


def describe(
    admin: Admin, topic: str, *, made: bool = False, with_rights: bool = False, requested: Requested | None = None
) -> TopicDescription:
    """Return the brokers' description of a topic, with this principal's permissions if ``with_rights``.

    ``made`` is as for `Admin.read_confirmed`, and ``requested`` is the result of `request_topics`. Raises
    LogNotFoundError, StorageError.
    """

    def question() -> TopicDescription:
        description: TopicDescription
        if requested and topic in requested:
            description = admin.answer(requested.pop(topic))
            return description
        requested_at = time.monotonic()
        sent = admin.client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=with_rights, request_timeout=admin.request_seconds
        )
        description = admin.answer(sent[topic])
        admin.cache_topic(requested_at, topic, str(description.topic_id), len(description.partitions))
        return description

    def read() -> TopicDescription:
        return admin.ask(question, f"looking for topic {topic}", on_topic("Describe", topic))

    return admin.read_confirmed(topic, read, made=made)


def leader_of(partition: TopicPartitionInfo) -> int:
    """Return the id of the leader of a partition, -1 if it has none."""
    return getattr(partition.leader, "id", -1)  # None if there is no leader, against its type


def require_planned(admin: Admin, topic: str, log_id: str, partitions: int = 0) -> TopicDescription:
    """Return the brokers' description of a topic, and check that it is the topic that a plan was made for.

    The answer is confirmed if it is another topic, or has fewer than ``partitions``, which are never removed. Raises
    LogNotSharedError if it is another topic with the same name, LogNotFoundError, StorageError.
    """

    def doubt(description: TopicDescription) -> str:
        if str(description.topic_id) != log_id:
            return "a broker knows another one of its name"
        return "a broker knows of fewer partitions" if len(description.partitions) < partitions else ""

    admin.known.add(topic)
    result = admin.confirmed(lambda: describe(admin, topic), doubt, f"looking for topic {topic}")
    if str(result.topic_id) != log_id:
        raise LogNotSharedError(
            f"topic {topic} is not the one that the plan was made for: it was deleted and recreated. The new "
            f"one got nothing of this job. Use another job name if the rows are to go into it."
        )
    return result


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic, defaults included."""

    max_message_bytes: int
    """The largest batch of records that the topic accepts, which limits the largest record."""
    min_insync_replicas: int
    unclean_leader_election: bool
    compacted: bool
    deleted: bool
    """Whether retention removes records."""
    retention_ms: int
    """-1 means unlimited."""
    retention_bytes: int
    compression: str
    """The codec of stored batches. ``producer`` keeps the codec of each producer."""
    create_time: bool
    """Whether records keep the producers' timestamps. If not, brokers overwrite them and do not check them."""
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    """How far a record's timestamp may be before or after the time of the append."""
    delete_retention_ms: int
    """How long a compacted topic keeps a tombstone. For that long, an empty gap proves that no record was there."""


def _settings(
    admin: Admin, resource: ConfigResource, doing: str, requested: Requested | None = None
) -> dict[str, str] | None:
    """Return the settings of a topic or a broker, None if this principal may not read them."""

    def question() -> dict[str, str] | None:
        sent = requested.pop(resource, None) if requested else None
        if sent is None:
            sent = admin.client.describe_configs([resource], request_timeout=admin.request_seconds)[resource]
        try:
            return {name: str(entry.value) for name, entry in admin.answer(sent).items()}
        except KafkaException as error:
            if error.args[0].code() in NOT_PERMITTED:
                return None
            raise

    return admin.ask(question, doing)


def topic_settings(admin: Admin, topic: str, requested: Requested | None = None) -> TopicSettings | None:
    """Return the settings of a topic, None if this principal may not read them.

    ``requested`` is the result of `request_topics`. Raises LogNotFoundError, StorageError.
    """
    resource, doing = ConfigResource(ResourceType.TOPIC, topic), f"looking at the settings of topic {topic}"
    value = admin.read_confirmed(topic, lambda: _settings(admin, resource, doing, requested))
    if value is None:
        return None
    policies = value["cleanup.policy"].split(",")
    return TopicSettings(
        max_message_bytes=int(value["max.message.bytes"]),
        min_insync_replicas=int(value["min.insync.replicas"]),
        unclean_leader_election=value["unclean.leader.election.enable"] == "true",
        compacted="compact" in policies,
        deleted="delete" in policies,
        retention_ms=int(value["retention.ms"]),
        retention_bytes=int(value["retention.bytes"]),
        compression=value["compression.type"],
        create_time=value["message.timestamp.type"] == "CreateTime",
        timestamp_before_max_ms=_timestamp_limit(value, "before"),
        timestamp_after_max_ms=_timestamp_limit(value, "after"),
        delete_retention_ms=int(value["delete.retention.ms"]),
    )


def recent_settings(clients: ClientSet, topic: str, *, fresh: bool = False) -> TopicSettings | None:
    """Return settings at most a minute old, or current ones if ``fresh``. Raises as `topic_settings`."""
    return clients.cached(f"settings of {topic}", lambda: topic_settings(clients.admin, topic), fresh=fresh)


def _timestamp_limit(value: Mapping[str, str], side: str) -> int:
    """Return the limit for timestamps before or after now. Brokers older than Kafka 3.6 have one setting for both."""
    return int(
        value.get(f"message.timestamp.{side}.max.ms", value.get("message.timestamp.difference.max.ms", _NEVER))
    )


def broker_settings(admin: Admin, broker: int) -> dict[str, str]:
    """Return the settings of a broker, empty if this principal has no permission. Raises StorageError."""
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    return _settings(admin, resource, "looking at the brokers' settings") or {}


def alive_brokers(admin: Admin) -> list[int]:
    """Return the ids of the brokers that are alive. Raises StorageError."""

    def question() -> list[int]:
        described = admin.answer(admin.client.describe_cluster(request_timeout=admin.request_seconds))
        return sorted(each.id for each in described.nodes)

    return admin.ask(question, "listing the brokers")


def recent_ledger_kept_ms(clients: ClientSet) -> int | None:
    """Return how long a ledger entry outlives the newest chunk of its job in the partition, in milliseconds.

    None if this principal has no permission to read it. The result may be a minute old, and is from the brokers that
    answer in about a second. If none answers, retry. Raises StorageError after the deadline, because a wrong answer
    could hide expired entries.
    """
    return clients.cached("ledger", lambda: _ledger_kept_ms(clients.admin))


def _ledger_kept_ms(admin: Admin) -> int | None:
    doing = "reading how long the brokers keep ledger entries"
    retries = Wait(admin.patience_seconds, doing)
    while not (known := _read_once(admin)):
        if not retries.again("no broker answered"):
            raise StorageError(
                f"{doing}: no broker answered for {retries.waited:.0f} s. Check that the brokers are well, then run "
                f"the same job again."
            )
    return min((60_000 * int(each) for each in known if each and each.isdigit()), default=None)


def _read_once(admin: Admin) -> list[str | None]:
    """Return the settings of the brokers that answer, each None if this principal has no permission to read it."""
    seconds = 2 * timing.current().best_effort
    known: list[str | None] = []
    with suppress(KafkaException, TimeoutError):
        nodes = admin.client.describe_cluster(request_timeout=seconds).result(seconds).nodes
        resources = [ConfigResource(ResourceType.BROKER, str(each.id)) for each in nodes]
        requested = [admin.client.describe_configs([each], request_timeout=seconds)[each] for each in resources]
        wait(requested, seconds)
        for each in requested:
            try:
                known.append(each.result(0)[_LEDGER_RETENTION].value)
            except KafkaException as error:
                known += [None] if error.args[0].code() in NOT_PERMITTED else []
            except TimeoutError:
                pass
    return known
