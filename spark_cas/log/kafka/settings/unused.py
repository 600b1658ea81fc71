"""Settings of Java's client that are accepted without effect, because they cannot break a guarantee.

Users of Spark's own connector can keep them. The connector logs once how it behaves in their place.
"""

import logging
from functools import cache
from typing import NamedTuple

from spark_cas.log.kafka.settings import msk


class Unused(NamedTuple):
    """The fixed behavior for some settings."""

    instead: str
    """A sentence that follows the name of the setting."""
    names: tuple[str, ...]
    values: tuple[str, ...] = ()
    """The accepted values, in lower case: those that match the fixed behavior. Empty if any value is accepted."""


_LOG = logging.getLogger("spark_cas")

UNUSED: tuple[Unused, ...] = (
    Unused("Every write waits for all in-sync replicas.", ("acks",), ("all", "-1")),
    Unused("Option idempotence sets the guarantee of a write.", ("enable.idempotence",), ("true",)),
    Unused("Reads return only committed records.", ("isolation.level",), ("read_committed",)),
    Unused("The client does not create missing topics.", ("allow.auto.create.topics",), ("false",)),
    Unused("No subscribePattern matches the brokers' own topics.", ("exclude.internal.topics",), ("true",)),
    Unused("The key of a row determines its partition.", ("partitioner.ignore.keys",), ("false",)),
    Unused("No transaction stays open for a second phase.", ("transaction.two.phase.commit.enable",), ("false",)),
    Unused(
        "AWS's signer library for Python makes the token.",
        ("sasl.client.callback.handler.class",),
        tuple(f"{shaded}{msk.PACKAGE}IAMClientCallbackHandler".lower() for shaded in ("", msk.SHADED)),
    ),
    Unused("The client sends its id and secret unchanged.", ("sasl.oauthbearer.header.urlencode",), ("false",)),
    Unused(
        "A write appends each row to the partition that it is routed to.",
        ("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms"),
    ),
    Unused(
        "The client joins no consumer group.",
        (
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "internal.leave.group.on.close",
            "internal.throw.on.fetch.stable.offset.unsupported",
            "max.poll.interval.ms",
            "partition.assignment.strategy",
            "session.timeout.ms",
            "share.acknowledgement.mode",
        ),
    ),
    Unused("A read commits no offsets.", ("auto.commit.interval.ms",)),
    Unused("Use kafka.fetch.max.bytes, which limits a fetch.", ("max.poll.records",)),
    Unused("The client sends a request when it is full, or the chunk ends.", ("linger.ms",)),
    Unused("The client retries until kafka.delivery.timeout.ms is over.", ("retries",)),
    Unused(
        "Use kafka.delivery.timeout.ms, the deadline of all operations.", ("default.api.timeout.ms", "max.block.ms")
    ),
    Unused(
        "Use kafka.socket.connection.setup.timeout.ms, the limit of each attempt.",
        ("socket.connection.setup.timeout.max.ms",),
    ),
    Unused("Use option transactionTimeoutMs.", ("transaction.timeout.ms",)),
    Unused("An open client keeps the metadata of a topic.", ("metadata.max.idle.ms",)),
    Unused(
        "The client compresses at the default level of each type.",
        ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    ),
    Unused(
        "The client has no metrics of Java.",
        (
            "auto.include.jmx.reporter",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ),
    ),
    Unused(
        "The client uses OpenSSL, which negotiates the newest version and the best cipher that the broker has.",
        (
            "ssl.cipher.suites",
            "ssl.enabled.protocols",
            "ssl.keymanager.algorithm",
            "ssl.protocol",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
    ),
    Unused(
        "The client renews its login.",
        (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
        ),
    ),
    Unused(
        "The brokers verify tokens.",
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
    ),
)

UNUSED_BY_NAME = {name: each for each in UNUSED for name in each.names}


def holds_instead(name: str, value: str) -> str | None:
    """Return the fixed behavior for a setting, its name in lower case.

    None if the setting or value is not accepted.
    """
    unused = UNUSED_BY_NAME.get(name)
    if unused is None or (unused.values and value.strip().lower() not in unused.values):
        return None
    return unused.instead


@cache
def log_ignored(option: str, instead: str) -> None:
    """Log once per process that an option has no effect, and the fixed behavior."""
    _LOG.warning("option %s has no effect here. %s", option, instead)
