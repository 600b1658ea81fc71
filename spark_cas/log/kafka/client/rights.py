"""The permissions (ACLs) that a principal needs."""

from dataclasses import dataclass

from confluent_kafka import KafkaError

from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_KIND = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}

NOT_PERMITTED = frozenset(_KIND)
"""The codes of missing permissions."""


@dataclass(frozen=True, slots=True)
class Right:
    """One entry of an access control list."""

    operation: str
    kind: str
    """The resource type as in ``kafka-acls.sh``: topic, group, transactional-id, cluster."""
    name: str
    prefixed: bool = False
    """Whether ``name`` is a prefix."""

    def __str__(self) -> str:
        kind = self.kind.replace("-", " ")
        return f"{self.operation} on {kind}{'s that begin with' if self.prefixed else ''} {self.name}"

    @property
    def options(self) -> str:
        """Return the options of ``kafka-acls.sh`` for this permission."""
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return f"--operation {self.operation} --{self.kind} {self.name}{pattern}"


def on_topic(operation: str, topic: str) -> Right:
    """Return a permission on one topic."""
    return Right(operation, "topic", topic)


def on_groups(operation: str, prefix: str) -> Right:
    """Return a permission on the groups of the ledger."""
    return Right(operation, "group", f"{prefix}/", prefixed=True)


def on_ids(operation: str, prefix: str) -> Right:
    """Return a permission on the transactional ids of writers."""
    return Right(operation, "transactional-id", f"{prefix}/", prefixed=True)


def to_claim(spec: KafkaSpec) -> tuple[Right, ...]:
    """Return the permissions to use a transactional id. Write includes Describe."""
    return (on_ids("Write", spec.prefix),)


def to_append(spec: KafkaSpec) -> tuple[Right, ...]:
    """Return the permissions to append. Read is for the ledger entry, which is an offset of the topic in a group."""
    return (
        *to_claim(spec),
        on_topic("Write", spec.topic),
        on_topic("Read", spec.topic),
        on_groups("Read", spec.prefix),
    )


def missing(code: int, rights: tuple[Right, ...]) -> str:
    """Return which of the needed permissions an error code reports as missing, and how to grant them."""
    result = [right for right in rights if right.kind == _KIND[code]]
    if not result:
        return f"the right to do that on the {_KIND[code].replace('-', ' ')} is missing"
    return lacking(*result)


def lacking(*rights: Right) -> str:
    """Return a phrase that permissions are missing, and how to grant them."""
    lines = "; ".join(f"kafka-acls.sh --add --allow-principal User:<user> {right.options}" for right in rights)
    return f"this user lacks an ACL: {' or '.join(map(str, rights))}. An administrator gives it: {lines}"
