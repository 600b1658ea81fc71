"""The address and client settings of a topic, as plain values that can be sent to other processes."""

import random
from dataclasses import dataclass, replace
from typing import Self

from spark_cas.core.errors import BatchTooLargeError
from spark_cas.log import timing
from spark_cas.log.timing import LONGEST_TRANSACTION_MS, RETRY_TIMEOUT_MS

DEFAULT_PREFIX = "spark-cas"
DEFAULT_TRANSACTION_MS = 60_000
_LEAST_THROUGHPUT = 4_000
"""The lowest throughput that a transaction timeout allows for, in bytes per millisecond."""
_DELIVERY_SHARE = 0.75
_REGISTRY_IDS = 1024
"""Two writers that draw the same id at the same time fence each other, and retry. Brokers keep ids for days."""
_CHANCE = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class KafkaSpec:
    """A topic, its brokers, and the settings of its clients."""

    bootstrap_servers: str
    topic: str
    prefix: str = DEFAULT_PREFIX
    """The prefix of all transactional ids, ledger groups and registry topics, so that ACLs can be prefixed."""
    client_options: tuple[tuple[str, str], ...] = ()
    """Settings of librdkafka's clients under its own names. They may be secret and are never shown."""
    open_transaction_wait_ms: int = RETRY_TIMEOUT_MS
    """How long a claim or a read waits for an open transaction of another writer, in milliseconds."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_MS
    """How long a crashed writer may block readers, in milliseconds."""
    reached: bool = False
    """Whether these brokers answered before. If so, a connection failure is considered transient."""

    @property
    def patience_seconds(self) -> float:
        """Return the retry timeout against slow, restarting or electing brokers, in seconds (delivery.timeout.ms)."""
        return int(dict(self.client_options).get("message.timeout.ms", RETRY_TIMEOUT_MS)) / 1000

    @property
    def compression(self) -> str | None:
        """Return the codec of producers, None if they do not compress."""
        codec = dict(self.client_options).get("compression.type", "none")
        return None if codec == "none" else codec

    @property
    def most_request_bytes(self) -> int | None:
        """Return the largest record before compression, in bytes (max.request.size), None if not limited."""
        most = dict(self.client_options).get("message.max.bytes")
        return None if most is None else int(most)

    @property
    def sets_fetch_wait(self) -> bool:
        """Return whether the user sets how long a broker waits for more records before it answers a fetch."""
        return "fetch.wait.max.ms" in dict(self.client_options)

    def as_reached(self) -> Self:
        """Return the same topic, marked as reachable before, so that connection failures are retried.

        Without the mark, a connection failure raises at once, because the address may be wrong.
        """
        return replace(self, reached=True)

    def with_patience(self, most_ms: int) -> Self:
        """Return the same topic with timeouts of at most ``most_ms``, including waits for transactions of others."""
        shorter = min(most_ms, int(1000 * self.patience_seconds))
        options = {**dict(self.client_options), "message.timeout.ms": str(shorter)}
        return replace(
            self,
            client_options=tuple(sorted(options.items())),
            open_transaction_wait_ms=min(self.open_transaction_wait_ms, most_ms),
        )

    def with_short_transaction(self) -> Self:
        """Return the same topic with a transaction timeout for an append of a few records to an internal topic."""
        short_ms = int(1000 * timing.current().short_transaction)
        return replace(self, transaction_timeout_ms=min(short_ms, self.transaction_timeout_ms))

    def with_transaction_of(self, size: int) -> Self:
        """Return the same topic with a transaction timeout that is long enough for ``size`` bytes.

        Raises:
            BatchTooLargeError: The timeout would be above the brokers' default limit.
        """
        needed_ms = DEFAULT_TRANSACTION_MS + size // _LEAST_THROUGHPUT
        if needed_ms > LONGEST_TRANSACTION_MS:
            most = (LONGEST_TRANSACTION_MS - DEFAULT_TRANSACTION_MS) * _LEAST_THROUGHPUT
            raise BatchTooLargeError(
                f"the load has {size} bytes, and a transaction that may be open for "
                f"{LONGEST_TRANSACTION_MS // 60_000} minutes is only sure to take {most}. Nothing of it was "
                f"appended. Load it in parts, each under a job name of its own, or with atomic=partition."
            )
        return replace(self, transaction_timeout_ms=max(self.transaction_timeout_ms, needed_ms))

    @property
    def open_transaction_seconds(self) -> float:
        """Return how long a claim or a read waits for an open transaction of another writer, in seconds."""
        return self.open_transaction_wait_ms / 1000

    @property
    def request_seconds(self) -> float:
        """Return the timeout of one request in seconds: request.timeout.ms, but at most 10 s."""
        longest_ms = int(1000 * timing.current().longest_request)
        return min(longest_ms, int(dict(self.client_options).get("socket.timeout.ms", longest_ms))) / 1000

    @property
    def delivery_seconds(self) -> float:
        """Return how long one attempt to send a chunk may take, in seconds, with time left for the commit."""
        return min(self.patience_seconds, _DELIVERY_SHARE * self.transaction_timeout_ms / 1000)

    @property
    def url(self) -> str:
        """Return the address without its settings: ``kafka://host1:9092,host2:9092/topic``."""
        return f"kafka://{self.bootstrap_servers}/{self.topic}"

    @property
    def has_brokers(self) -> bool:
        return True

    @property
    def server(self) -> str:
        return f"the brokers of topic {self.topic}"

    def of_topic(self, topic: str) -> Self:
        return replace(self, topic=topic)

    def group(self, job: str) -> str:
        """Return the group whose offsets are the ledger of a job. It has no members."""
        return f"{self.prefix}/{job}"

    @property
    def load_locks_group(self) -> str:
        """Return the group whose offsets are the load lock. It has no members, and no job's name contains a slash."""
        return f"{self.prefix}/grants/"

    @property
    def registry_topic(self) -> str:
        """Return the compacted topic of plans and completions."""
        return f"{self.prefix}.registry"

    @property
    def layouts_topic(self) -> str:
        """Return the compacted topic of expansions."""
        return f"{self.prefix}.layouts"

    def id_of_partition(self, partition: int, job: str | None) -> str:
        """Return the transactional id whose newest producer may write a partition, with a job only for that job.

        For each id, the brokers fence all but the newest producer (KIP-98). No id includes an attempt or a run,
        because brokers keep ids for days.
        """
        owner = f"{self.prefix}/{self.topic}/{partition}"
        return owner if job is None else f"{owner}/{job}"

    def id_of_atomic_load(self, job: str) -> str:
        """Return the transactional id whose newest producer may write all partitions for an atomic load."""
        return f"{self.prefix}/{self.topic}/whole/{job}"

    @property
    def id_of_load_locks(self) -> str:
        """Return the transactional id of the load lock. Partitions have numbers in this place, so it is unique."""
        return f"{self.prefix}/{self.topic}/grants"

    def id_of_registry_write(self) -> str:
        """Return one of `_REGISTRY_IDS` transactional ids that write to a registry topic, at random.

        The topic of this spec must be the registry topic, not that of a log.
        """
        return f"{self.prefix}/{self.topic}/{_CHANCE.randrange(_REGISTRY_IDS)}"

    @property
    def id_of_preflight(self) -> str:
        """Return the transactional id with which a preflight checks that the brokers allow transactions."""
        return f"{self.prefix}/preflight"

    def __repr__(self) -> str:
        return f"KafkaSpec(topic={self.topic!r}, prefix={self.prefix!r}, client_options=<hidden>)"
