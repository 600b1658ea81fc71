"""Settings that are rejected, each with its reason, and settings that are accepted without effect.

The rejected settings are owned by the connector, run code, or have no equivalent. Settings that are in no table are
rejected too. The table has those that users often set, under Java's or librdkafka's names, so that the error can name
the alternative. A setting without effect cannot break a guarantee, so users of Spark's own connector can keep it. The
connector logs once how it behaves in its place.
"""

import logging
from functools import cache
from typing import NamedTuple

from spark_cas.log.kafka.settings import msk
from spark_cas.log.kafka.settings.client_settings import SETTINGS

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


NO_KERBEROS = (
    "Kerberos (GSSAPI) is not supported: it needs a confluent-kafka that is built from source, with a librdkafka "
    "that has libsasl2, and the published wheels of confluent-kafka have none. Use kafka.sasl.mechanism "
    "SCRAM-SHA-512 or OAUTHBEARER, or mutual TLS."
)
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
    Refusal(f"{NO_KERBEROS} Leave it out.", (), ("sasl.kerberos.",)),
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
        "Write it in kafka.sasl.jaas.config, whose password may be env:NAME or file:PATH.",
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
