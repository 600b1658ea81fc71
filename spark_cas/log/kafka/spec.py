"""Where a topic is: plain values that cross processes."""

from dataclasses import dataclass, replace
from typing import Self

from spark_cas.core.errors import BatchTooLargeError
from spark_cas.log.patience import PATIENCE_MS

DEFAULT_PREFIX = "spark-cas"
DEFAULT_TRANSACTION_MS = 60_000
MOST_IN_FLIGHT = 5
"""Brokers keep the order of so many requests of a producer that are unanswered at once, and of no more."""

LONGEST_TRANSACTION_MS = 900_000
"""As long as brokers let a transaction be open, unless they are told otherwise (transaction.max.timeout.ms)."""

_LEAST_BYTES_PER_MS = 4_000
"""Brokers that take less are not well."""
_MOST_REQUEST_MS = 10_000
_DELIVERY_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class KafkaSpec:
    """A topic, the brokers that serve it, and how clients of it are set up."""

    bootstrap_servers: str
    topic: str
    prefix: str = DEFAULT_PREFIX
    """Begins every transactional id, ledger group and the registry's name, so that ACLs can be prefixed."""
    client_options: tuple[tuple[str, str], ...] = ()
    """Settings of librdkafka's clients under its own names. They may be secret and are never shown."""
    claim_timeout_ms: int = PATIENCE_MS
    """How long a claim or a read waits for someone else's open transaction."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_MS
    """How long a dead writer may keep readers waiting."""
    max_in_flight: int = MOST_IN_FLIGHT
    """The most requests that a writer has unanswered at once, on its connection to a broker."""

    met: bool = False
    """Whether these brokers answered before: then a port that is closed now is one that opens again."""

    @property
    def patience_seconds(self) -> float:
        """How long anything goes on against brokers that are slow, restarting or electing: delivery.timeout.ms."""
        return int(dict(self.client_options).get("message.timeout.ms", PATIENCE_MS)) / 1000

    @property
    def compression(self) -> str | None:
        """The codec of producers; None if they do not compress."""
        codec = dict(self.client_options).get("compression.type", "none")
        return None if codec == "none" else codec

    @property
    def most_request_bytes(self) -> int | None:
        """The size of the largest record that producers send, before compression (max.request.size); None: any."""
        most = dict(self.client_options).get("message.max.bytes")
        return None if most is None else int(most)

    @property
    def says_fetch_wait(self) -> bool:
        """Whether the user says how long a broker is to wait for more before it answers a fetch."""
        return "fetch.wait.max.ms" in dict(self.client_options)

    def with_patience(self, most_ms: int) -> Self:
        """The same topic for who waits no longer than this: not for others' transactions either."""
        shorter = min(most_ms, int(1000 * self.patience_seconds))
        options = {**dict(self.client_options), "message.timeout.ms": str(shorter)}
        return replace(
            self,
            client_options=tuple(sorted(options.items())),
            claim_timeout_ms=min(self.claim_timeout_ms, most_ms),
        )

    def with_transaction_of(self, size: int) -> Self:
        """The same topic for a transaction of so many bytes, which may be open for as long as that takes.

        Raises BatchTooLargeError where that is longer than brokers let it be.
        """
        needed_ms = DEFAULT_TRANSACTION_MS + size // _LEAST_BYTES_PER_MS
        if needed_ms > LONGEST_TRANSACTION_MS:
            most = (LONGEST_TRANSACTION_MS - DEFAULT_TRANSACTION_MS) * _LEAST_BYTES_PER_MS
            raise BatchTooLargeError(
                f"the load has {size} bytes, and a transaction that may be open for "
                f"{LONGEST_TRANSACTION_MS // 60_000} minutes is only sure to take {most}. Nothing of it was "
                f"appended. Load it in parts, each under a job name of its own, or with atomic=partition."
            )
        return replace(self, transaction_timeout_ms=max(self.transaction_timeout_ms, needed_ms))

    @property
    def request_seconds(self) -> float:
        """How long one request is waited for: request.timeout.ms, where that is less."""
        return min(_MOST_REQUEST_MS, int(dict(self.client_options).get("socket.timeout.ms", _MOST_REQUEST_MS))) / 1000

    @property
    def delivery_seconds(self) -> float:
        """How long one attempt to send a chunk may last, so that its transaction can still be committed."""
        return min(self.patience_seconds, _DELIVERY_SHARE * self.transaction_timeout_ms / 1000)

    @property
    def url(self) -> str:
        """The address without its settings: ``kafka://host1:9092,host2:9092/topic``."""
        return f"kafka://{self.bootstrap_servers}/{self.topic}"

    @property
    def has_brokers(self) -> bool:
        """Whether brokers serve it."""
        return True

    @property
    def server(self) -> str:
        """Who is asked for it, in plain words."""
        return f"the brokers of topic {self.topic}"

    def of_topic(self, topic: str) -> Self:
        """Another topic of the same brokers."""
        return replace(self, topic=topic)

    def transactional_id(self, partition: int, job: str | None) -> str:
        """The id whose newest holder may write a partition; with a job, the holder for that job alone.

        Never an id per attempt or run: brokers keep ids for days.
        """
        owner = f"{self.prefix}/{self.topic}/{partition}"
        return owner if job is None else f"{owner}/{job}"

    def whole_id(self, job: str) -> str:
        """The id whose newest holder may write all partitions at once for a job: its load as a whole."""
        return f"{self.prefix}/{self.topic}/whole/{job}"

    def group(self, job: str) -> str:
        """The memberless group whose offsets are the ledger of a job."""
        return f"{self.prefix}/{job}"

    @property
    def grants_id(self) -> str:
        """The id whose newest holder may change the grants of the topic. No partition's: those have numbers."""
        return f"{self.prefix}/{self.topic}/grants"

    @property
    def grants_group(self) -> str:
        """The memberless group whose offsets are the grants. No job's name has a slash."""
        return f"{self.prefix}/grants/"

    @property
    def registry_topic(self) -> str:
        """The compacted topic that holds plans and completions."""
        return f"{self.prefix}.registry"

    @property
    def layouts_topic(self) -> str:
        """The compacted topic that holds expansions."""
        return f"{self.prefix}.layouts"

    def __repr__(self) -> str:
        return f"KafkaSpec(topic={self.topic!r}, prefix={self.prefix!r}, client_options=<hidden>)"
