"""Settings and replicas of topics and brokers that weaken a promise, as findings."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from confluent_kafka import TopicPartitionInfo
from confluent_kafka.admin import TopicDescription

from spark_cas.core.errors import LogNotFoundError
from spark_cas.core.finding import Finding, Problem, Severity
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import NotPermittedError
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import (
    TopicSettings,
    alive_brokers,
    broker_settings,
    describe,
    leader_of,
    topic_settings,
)
from spark_cas.log.timing import LONGEST_TRANSACTION_MS

_USUAL_RESUME_MINUTES = 10_080
"""Seven days: the default of offsets.retention.minutes and, in milliseconds, of transactional.id.expiration.ms."""
_RESTART = "in server.properties of each broker, and restart the brokers one after the other"
_REPLICAS = 3
_INTERNAL = ("__transaction_state", "__consumer_offsets")
_BROKERS = " BROKERS "
"""The place of the address and the login in a fix that runs a tool of Kafka."""


def with_brokers(fix: str, spec: KafkaSpec) -> str:
    """Return a fix of this module with the address of the brokers, and the file with the login if they need one."""
    arguments = f"--bootstrap-server {shlex.quote(spec.bootstrap_servers)}"
    if dict(spec.client_options).get("security.protocol", "plaintext") != "plaintext":
        arguments += " --command-config client.properties"
    return fix.replace(_BROKERS, f" {arguments} ", 1)


def replica_findings(
    description: TopicDescription, settings: TopicSettings | None, brokers: Sequence[int]
) -> Iterator[Finding]:
    """Yield findings on the leaders and the replicas of a topic, for a cluster with these brokers."""
    subject, partitions = f"topic {description.name}", description.partitions
    needed = None if settings is None else settings.min_insync_replicas
    leaderless = [each for each in partitions if leader_of(each) < 0]
    if leaderless:
        meaning = f"{_named(leaderless)} has no leader: it can be neither written nor read"
        details: dict[str, object] = {"partitions": [each.id for each in leaderless]}
        fix = "start the brokers that hold its replicas"
        yield Finding(Problem.NO_LEADER, Severity.ERROR, subject, meaning, fix, details)
    lagging = [each for each in partitions if leader_of(each) >= 0 and len(each.isr) < len(each.replicas)]
    refused = [each for each in lagging if needed is not None and len(each.isr) < needed]
    if lagging:
        limit = f"min.insync.replicas is {needed}"
        consequence = "no append is acknowledged" if refused else "a failure of another broker may block appends"
        if needed is None:
            limit, consequence = "min.insync.replicas is not known", "appends may be blocked"
        severity = Severity.ERROR if refused else Severity.WARNING
        meaning = f"{_named(refused or lagging)} has replicas that are not in sync, and {limit}: {consequence}"
        fix = "start the missing brokers, and wait until their replicas are in sync"
        details = {"partitions": [each.id for each in lagging]}
        yield Finding(Problem.REPLICAS_OUT_OF_SYNC, severity, subject, meaning, fix, details)
    if min(len(each.replicas) for each in partitions) == 1:
        meaning = f"{subject} has one replica: if its broker loses the disk, its records are lost"
        fix = _add_replicas(description, brokers)
        yield Finding(Problem.REPLICATION_FACTOR, Severity.WARNING, subject, meaning, fix, {"replicas": 1})


def loss_findings(description: TopicDescription, settings: TopicSettings) -> Iterator[Finding]:
    """Yield findings on the settings of a topic with which a failure may lose acknowledged records."""
    name, subject = description.name, f"topic {description.name}"
    if settings.unclean_leader_election:
        meaning = (
            f"unclean.leader.election.enable of {subject} is true: after a failure acknowledged records may be lost. "
            f"A later append then fails, because the log was truncated; set it to false to keep them"
        )
        fix = _alter_topic(name, "unclean.leader.election.enable=false")
        yield Finding(Problem.UNCLEAN_LEADER_ELECTION, Severity.WARNING, subject, meaning, fix)
    least, replicas = settings.min_insync_replicas, min(len(each.replicas) for each in description.partitions)
    if least < min(2, replicas):
        meaning = (
            f"min.insync.replicas of {subject} is {least} with {replicas} replicas: a record may be acknowledged "
            f"while only one broker has it. Set it to 2 or more"
        )
        details: dict[str, object] = {"min_insync_replicas": least, "replicas": replicas}
        fix = _alter_topic(name, "min.insync.replicas=2")
        yield Finding(Problem.MIN_INSYNC_REPLICAS, Severity.WARNING, subject, meaning, fix, details)


def removal_findings(name: str, settings: TopicSettings) -> Iterator[Finding]:
    """Yield findings on the settings of a log's topic with which the brokers remove records."""
    subject = f"topic {name}"
    if settings.compacted:
        meaning = (
            "the topic is compacted: rows need a key, older values of a key vanish, and an expected offset must be "
            "the end itself once the claim is older than delete.retention.ms"
        )
        fix = f"to keep all records: {_alter_topic(name, 'cleanup.policy=delete,retention.ms=-1')}"
        yield Finding(Problem.COMPACTION, Severity.INFO, subject, meaning, fix)
    if settings.deleted and settings.retention_ms >= 0:
        meaning = (
            f"records whose timestamp is older than {duration(settings.retention_ms)} are deleted (retention.ms), "
            f"also right after they were appended. Leave the column timestamp out, or set retention.ms to -1, if "
            f"rows are older than that"
        )
        yield Finding(Problem.RETENTION, Severity.INFO, subject, meaning, _alter_topic(name, "retention.ms=-1"))
    if settings.deleted and settings.retention_bytes >= 0:
        meaning = (
            f"a partition keeps no more than {settings.retention_bytes} bytes (retention.bytes): older records are "
            f"deleted. Set it to -1 if the log is to be kept whole"
        )
        yield Finding(Problem.RETENTION, Severity.INFO, subject, meaning, _alter_topic(name, "retention.bytes=-1"))


def registry_findings(name: str, settings: TopicSettings) -> Iterator[Finding]:
    """Yield findings on the settings of a registry topic with which plans expire."""
    if settings.deleted and max(settings.retention_ms, settings.retention_bytes) >= 0:
        meaning = (
            f"the registry topic {name} deletes old records, and with them plans and completions: a job that is run "
            f"again could be appended a second time"
        )
        fix = _alter_topic(name, "cleanup.policy=compact")
        yield Finding(Problem.REGISTRY_EXPIRES, Severity.ERROR, f"topic {name}", meaning, fix)


def broker_findings(broker: int, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings on the settings of a broker that are known."""
    subject, minutes = f"broker {broker}", _number(settings, "offsets.retention.minutes")
    if minutes is not None and minutes < _USUAL_RESUME_MINUTES:
        meaning = (
            f"a job that was interrupted can be resumed only for {duration(minutes * 60_000)} after its last chunk "
            f"(offsets.retention.minutes), and is refused later. Set it to {_USUAL_RESUME_MINUTES} or more"
        )
        fix = f"set offsets.retention.minutes={_USUAL_RESUME_MINUTES} {_RESTART}"
        yield Finding(Problem.OFFSETS_RETENTION, Severity.WARNING, subject, meaning, fix)
    if settings and settings.get("transaction.partition.verification.enable") != "true":
        meaning = (
            "transaction.partition.verification.enable is not true, or the brokers are older than Kafka 3.6: a "
            "transaction that a failure left open may block all readers until an operator aborts it. Set it to true"
        )
        fix = (
            f"kafka-configs.sh{_BROKERS}--alter --entity-type brokers --entity-default --add-config "
            "transaction.partition.verification.enable=true"
        )
        yield Finding(Problem.PARTITION_VERIFICATION, Severity.WARNING, subject, meaning, fix)


def transaction_findings(broker: int, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings on the settings of a broker that apply to its transactions."""
    subject, longest_ms = f"broker {broker}", _number(settings, "transaction.max.timeout.ms")
    if longest_ms is not None and longest_ms < LONGEST_TRANSACTION_MS:
        meaning = (
            f"transaction.max.timeout.ms is {longest_ms}: an atomic load that needs a longer transaction fails "
            f"before its first row"
        )
        fix = f"set transaction.max.timeout.ms={LONGEST_TRANSACTION_MS} {_RESTART}"
        yield Finding(Problem.TRANSACTION_TIMEOUT, Severity.WARNING, subject, meaning, fix)
    kept_ms = _number(settings, "transactional.id.expiration.ms")
    if kept_ms is not None and kept_ms < 60_000 * _USUAL_RESUME_MINUTES:
        meaning = (
            f"a coordinator forgets a transactional id after {duration(kept_ms)} without a transaction "
            f"(transactional.id.expiration.ms): a writer that was suspended for longer is no longer fenced"
        )
        fix = f"set transactional.id.expiration.ms={60_000 * _USUAL_RESUME_MINUTES} {_RESTART}"
        yield Finding(Problem.TRANSACTIONAL_ID_EXPIRATION, Severity.WARNING, subject, meaning, fix)


def duration(milliseconds: int) -> str:
    """Return a duration in days or, below a day, in seconds."""
    days = milliseconds / 86_400_000
    return f"{days:g} days" if days >= 1 else f"{milliseconds / 1000:g} s"


def _number(settings: Mapping[str, str], name: str) -> int | None:
    value = settings.get(name)
    return None if value is None else int(value)


def _alter_topic(name: str, setting: str) -> str:
    return f"kafka-configs.sh{_BROKERS}--alter --entity-type topics --entity-name {name} --add-config {setting}"


def _add_replicas(description: TopicDescription, brokers: Sequence[int]) -> str:
    """Return the command that adds replicas to each partition with fewer than three, and keeps the existing ones."""
    if len(brokers) < 2:  # noqa: PLR2004 - one broker
        return "add two brokers. For the next command, run spark-cas doctor LOG"
    plan = []
    for each in description.partitions:
        existing = [node.id for node in each.replicas]
        others = [broker for broker in sorted(brokers) if broker not in existing]
        start = each.id % max(1, len(others))
        replicas = [*existing, *others[start:], *others[:start]][: max(_REPLICAS, len(existing))]
        if replicas != existing:
            plan.append({"topic": description.name, "partition": each.id, "replicas": replicas})
    text = json.dumps({"version": 1, "partitions": plan}, separators=(",", ":"))
    tool = f"kafka-reassign-partitions.sh{_BROKERS}--reassignment-json-file replicas.json --additional --execute"
    return f"echo '{text}' > replicas.json && {tool}"


def _named(partitions: list[TopicPartitionInfo]) -> str:
    first = f"partition {partitions[0].id}"
    return first if len(partitions) == 1 else f"{first} (and {len(partitions) - 1} more)"


def cluster_findings(admin: Admin, spec: KafkaSpec) -> Iterator[Finding]:
    """Yield findings on the settings and replicas of all brokers and topics that a log depends on.

    Raises LogNotFoundError, StorageError.
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
