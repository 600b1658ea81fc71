"""The tables of client settings: accepted, rejected, and accepted without effect. Security settings have their own.

An accepted setting has Java's name, librdkafka's name, and the clients that use it. It has a true equivalent that
limits the same thing, in the same or a converted unit. Ranges are librdkafka's, so that a client never rejects a
checked setting with an error that contains its value. Source: the configuration pages of Kafka 4 and of librdkafka
2.16.

The rejected settings are owned by the connector, run code, or have no equivalent. Settings that are in no table are
rejected too. The table has those that users often set, under Java's or librdkafka's names, so that the error can name
the alternative. A setting without effect cannot break a guarantee, so users of Spark's own connector can keep it. The
connector logs once how it behaves in its place.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import NamedTuple

from spark_cas.log.kafka.settings import msk
from spark_cas.log.kafka.settings.kerberos import KERBEROS_NAMES, NO_KERBEROS

_MAX_INT = 2**31 - 1


class Client(Enum):
    """The kinds of client that settings apply to."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


EVERY = frozenset(Client)
_PRODUCER = frozenset({Client.PRODUCER})
_CONSUMER = frozenset({Client.CONSUMER})


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with both of its names."""

    java: str
    rdkafka: str
    convert: Callable[[str], str]
    """Converts a value from Java's form to librdkafka's. Raises ValueError with the expected form, not the value."""
    clients: frozenset[Client] = EVERY


def whole(least: int, most: int) -> Callable[[str], str]:
    """Return a converter that accepts integers in a range, unchanged."""

    def convert(text: str) -> str:
        stripped = text.strip()
        # Check the length first, because Python rejects thousands of digits with an error of its own.
        small = stripped.isascii() and stripped.isdigit() and len(stripped.lstrip("0")) <= len(str(most))
        if not small or not least <= int(stripped) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return str(int(stripped))

    return convert


def _unless_minus_one(convert: Callable[[str], str]) -> Callable[[str], str]:
    """Return a converter that turns Java's -1, for none or the system default, into librdkafka's 0."""

    def converted(text: str) -> str:
        if text.strip() == "-1":
            return "0"
        try:
            return convert(text)
        except ValueError as expected:
            raise ValueError(f"-1 or {expected}") from None

    return converted


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a converter that accepts any of these words, in any case, and returns it as written here."""
    by_lower = {choice.lower(): choice for choice in choices}

    def convert(text: str) -> str:
        if text.strip().lower() not in by_lower:
            raise ValueError(choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}")
        return by_lower[text.strip().lower()]

    return convert


def text(value: str) -> str:
    """Return a text that is not blank. A NUL is invalid, because it would end the text in C."""
    if not value.strip() or "\0" in value:
        raise ValueError("a text that is not empty, without NUL")
    return value


_BUFFER = _unless_minus_one(whole(1, 100_000_000))
_FLAG = one_of("true", "false")

SETTINGS: tuple[Setting, ...] = (
    # All clients.
    Setting("client.id", "client.id", text),
    Setting("client.rack", "client.rack", text),
    # Java's other value is only for Kerberos with an alias of the brokers.
    Setting("client.dns.lookup", "client.dns.lookup", one_of("use_all_dns_ips")),
    Setting("connections.max.idle.ms", "connections.max.idle.ms", _unless_minus_one(whole(1, _MAX_INT))),
    Setting("enable.metrics.push", "enable.metrics.push", _FLAG),
    # librdkafka's metadata.max.age.ms expires a cache entry after three refreshes. Java's is the refresh interval.
    Setting("metadata.max.age.ms", "topic.metadata.refresh.interval.ms", whole(1, 3_600_000)),
    Setting(
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.rebootstrap.trigger.ms", whole(0, _MAX_INT)
    ),
    Setting("metadata.recovery.strategy", "metadata.recovery.strategy", one_of("none", "rebootstrap")),
    Setting("receive.buffer.bytes", "socket.receive.buffer.bytes", _BUFFER),
    Setting("reconnect.backoff.max.ms", "reconnect.backoff.max.ms", whole(0, 3_600_000)),
    Setting("reconnect.backoff.ms", "reconnect.backoff.ms", whole(0, 3_600_000)),
    # librdkafka's request.timeout.ms is how long the broker waits for its replicas.
    Setting("request.timeout.ms", "socket.timeout.ms", whole(10, 300_000)),
    Setting("retry.backoff.max.ms", "retry.backoff.max.ms", whole(1, 300_000)),
    Setting("retry.backoff.ms", "retry.backoff.ms", whole(1, 300_000)),
    Setting("send.buffer.bytes", "socket.send.buffer.bytes", _BUFFER),
    Setting("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.ms", whole(1000, _MAX_INT)),
    # Producers.
    Setting("batch.size", "batch.size", whole(1, _MAX_INT), _PRODUCER),
    Setting("compression.type", "compression.type", one_of("none", "gzip", "snappy", "lz4", "zstd"), _PRODUCER),
    # Also the retry timeout of all clients (`KafkaSpec.patience_seconds`). 0 would disable it.
    Setting("delivery.timeout.ms", "message.timeout.ms", whole(1, _MAX_INT), _PRODUCER),
    # Brokers keep the order of at most five requests of a producer.
    Setting("max.in.flight.requests.per.connection", "max.in.flight", whole(1, 5), _PRODUCER),
    # Not for consumers, where librdkafka's name is the minimum size of a fetch.
    Setting("max.request.size", "message.max.bytes", whole(1000, 1_000_000_000), _PRODUCER),
    # Consumers.
    Setting("check.crcs", "check.crcs", _FLAG, _CONSUMER),
    # At least the consumer's message.max.bytes, which keeps its default.
    Setting("fetch.max.bytes", "fetch.max.bytes", whole(1_000_000, 2**31 - 513), _CONSUMER),
    Setting("fetch.max.wait.ms", "fetch.wait.max.ms", whole(0, 300_000), _CONSUMER),
    Setting("fetch.min.bytes", "fetch.min.bytes", whole(1, 100_000_000), _CONSUMER),
    Setting("max.partition.fetch.bytes", "max.partition.fetch.bytes", whole(1, 1_000_000_000), _CONSUMER),
)

BY_JAVA_NAME = {setting.java: setting for setting in SETTINGS}


_LOG = logging.getLogger("spark_cas")


class Refusal(NamedTuple):
    """A reason, and the settings that are rejected for it."""

    reason: str
    """The reason and the fix, as sentences that follow the name of the option."""
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


class Unused(NamedTuple):
    """The fixed behavior for some settings."""

    instead: str
    """A sentence that follows the name of the setting."""
    names: tuple[str, ...]
    values: tuple[str, ...] = ()
    """The accepted values, in lower case: those that match the fixed behavior. Empty if any value is accepted."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NOT_BYTES = "Keys and values are bytes here. Encode and decode them in the DataFrame, and leave it out."
_OFFSETS = "Spark keeps the offsets. Use the options startingOffsets and endingOffsets."

REFUSALS: tuple[Refusal, ...] = (
    # Owned by the connector, which needs them for exactly once.
    Refusal(
        "The address of the brokers is given once, as the option kafka.bootstrap.servers.",
        ("bootstrap.servers", "metadata.broker.list", "bootstrap.controllers"),
    ),
    Refusal(
        "The connector names its transactions after topic, partition and job. Use the option job.",
        ("transactional.id", "transactional.id.prefix"),
    ),
    Refusal(
        "A transaction that is never ended would block readers without limit. Leave it out.",
        ("transaction.two.phase.commit.enable",),
    ),
    Refusal(
        "A row that was acknowledged could be lost with one broker: every write waits for all replicas that are in "
        "sync. Leave it out, and set the topic's min.insync.replicas.",
        ("acks", "request.required.acks"),
    ),
    Refusal(
        "Option idempotence sets the guarantee of a write. Leave it out.",
        ("enable.idempotence", "enable.gapless.guarantee"),
    ),
    Refusal(
        "A request is sent again until kafka.delivery.timeout.ms is over. Leave it out.",
        ("message.send.max.retries",),
    ),
    Refusal("Use kafka.max.in.flight.requests.per.connection.", ("max.in.flight",)),
    Refusal(
        "Rows of a write that was refused would be read: reads are always of committed records. Leave it out.",
        ("isolation.level",),
    ),
    Refusal(_OFFSETS, ("auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store")),
    Refusal(
        "The brokers' own topics match no subscribePattern. Leave it out, and name the one that is meant.",
        ("exclude.internal.topics",),
    ),
    Refusal(
        "Rows go to the partition that they are routed to. Use option partitioner, which spark_cas.route takes.",
        ("partitioner",),
        ("partitioner.",),
    ),
    Refusal(_NOT_BYTES, (), ("key.", "value."), (".serializer", ".deserializer")),
    Refusal(
        "The topic has to exist: the first record would else make one with the broker's defaults. Create it first.",
        ("allow.auto.create.topics",),
    ),
    # Runs code, loads libraries or reveals secrets.
    Refusal(f"{NO_KERBEROS} Leave it out.", tuple(KERBEROS_NAMES)),
    Refusal(
        "With Kerberos, the client runs its own kinit once a minute, and never another command. Leave it out.",
        (),
        ("sasl.kerberos.",),
    ),
    Refusal(
        "The client has PLAIN, SCRAM, OAUTHBEARER (OIDC) and AWS_MSK_IAM built in and runs no handler of Java. Leave "
        "it out. For the tokens of another identity service, use option tokenProvider.",
        ("sasl.login.class", "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class"),
        (),
        (".callback.handler.class",),
    ),
    Refusal(
        "It would load a library or run code on every worker. Leave it out.",
        _words(
            "config.providers interceptor.classes plugin.library.paths security.providers ssl.provider ssl.providers"
        ),
        ("config.providers.", "ssl.engine."),
        (".class", ".classes"),
    ),
    Refusal(
        "It would write the events and settings of the client to the log of every worker. Leave it out.",
        ("debug", "log_level", "log.queue", "statistics.interval.ms"),
    ),
    Refusal(
        "A client that verifies no certificate talks to anybody. Leave it out, and name the authority that signed "
        "the brokers' certificates as kafka.ssl.truststore.location, with kafka.ssl.truststore.type PEM.",
        ("enable.ssl.certificate.verification",),
    ),
    Refusal(
        "A token without a signature proves nothing. Use kafka.sasl.oauthbearer.token.endpoint.url, or option "
        "tokenProvider.",
        ("enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config"),
    ),
    # Available in Java's client only.
    Refusal(
        "The client gets its tokens by client credentials. Leave it out, and give "
        "kafka.sasl.oauthbearer.client.credentials.client.id and its secret.",
        ("sasl.oauthbearer.header.urlencode",),
        ("sasl.oauthbearer.assertion.",),
    ),
    # librdkafka's names. Only Java's name is accepted for each setting, which Spark's connector accepts too.
    Refusal("Write kafka.sasl.mechanism.", ("sasl.mechanisms",)),
    Refusal(
        "Write it in kafka.sasl.jaas.config, whose password may be env:NAME, file:PATH or "
        "function:package.module:function.",
        ("sasl.password", "sasl.username"),
    ),
    Refusal(
        "Write kafka.ssl.truststore.location or kafka.ssl.truststore.certificates, with type PEM.",
        ("ssl.ca.location", "ssl.ca.pem"),
    ),
    Refusal(
        "Write kafka.ssl.keystore.location, or kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key, with "
        "kafka.ssl.keystore.type PEM.",
        ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem"),
    ),
    Refusal("Write kafka.sasl.oauthbearer.client.credentials.client.id.", ("sasl.oauthbearer.client.id",)),
    Refusal("Write kafka.sasl.oauthbearer.client.credentials.client.secret.", ("sasl.oauthbearer.client.secret",)),
    Refusal(
        "kafka.sasl.mechanism OAUTHBEARER is by OIDC, or by option tokenProvider. Leave it out.",
        ("sasl.oauthbearer.method",),
    ),
    *(
        Refusal(f"Write kafka.{setting.java}.", (setting.rdkafka,))
        for setting in SETTINGS
        if setting.rdkafka != setting.java
    ),
)


def reason_against(name: str) -> str | None:
    """Return why a setting is rejected and the alternative, None if no specific reason is known."""
    for refusal in REFUSALS:
        if name in refusal.names:
            return refusal.reason
    for refusal in REFUSALS:
        if name.startswith(refusal.prefixes) or name.endswith(refusal.suffixes):
            return refusal.reason
    return None


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
        _words(
            "group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms "
            "internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported max.poll.interval.ms "
            "partition.assignment.strategy session.timeout.ms share.acknowledgement.mode"
        ),
    ),
    Unused("A read commits no offsets.", ("auto.commit.interval.ms",)),
    Unused("Use kafka.fetch.max.bytes, which limits a fetch.", ("max.poll.records",)),
    Unused("The client sends a request when it is full, or the chunk ends.", ("linger.ms",)),
    Unused("Use option maxBytesPerChunk, which limits the rows in memory.", ("buffer.memory",)),
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
        _words(
            "auto.include.jmx.reporter metric.reporters metrics.num.samples metrics.recording.level "
            "metrics.sample.window.ms"
        ),
    ),
    Unused(
        "The client uses OpenSSL, which negotiates the newest version and the best cipher that the broker has.",
        _words(
            "ssl.cipher.suites ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol "
            "ssl.secure.random.implementation ssl.trustmanager.algorithm"
        ),
    ),
    Unused(
        "The client renews its login.",
        _words(
            "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
            "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor "
            "sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms"
        ),
    ),
    Unused(
        "The brokers verify tokens.",
        _words(
            "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
            "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms "
            "sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name"
        ),
    ),
)

UNUSED_BY_NAME = {name: each for each in UNUSED for name in each.names}


def holds_instead(name: str, value: str) -> str | None:
    """Return the fixed behavior for a setting (its name in lower case), None if it or its value is not accepted."""
    unused = UNUSED_BY_NAME.get(name)
    if unused is None or (unused.values and value.strip().lower() not in unused.values):
        return None
    return unused.instead


@cache
def log_ignored(option: str, instead: str) -> None:
    """Log once per process that an option has no effect, and the fixed behavior."""
    _LOG.warning("option %s has no effect here. %s", option, instead)
