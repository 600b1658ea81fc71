"""Rejected settings, each with its reason: owned by the connector, runs code, or without an equivalent.

Some settings are accepted with a value that has no effect (`spark_cas.log.kafka.settings.unused`). Settings that are
in no table are rejected too. The settings here are those that users often set, under Java's or librdkafka's names, so
the error has to name the alternative.
"""

from typing import NamedTuple

from spark_cas.log.kafka.settings.client_settings import SETTINGS


class Refusal(NamedTuple):
    """A reason, and the settings that are rejected for it."""

    reason: str
    """The reason and the fix, as sentences that follow the name of the option."""
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


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
        (
            "config.providers",
            "interceptor.classes",
            "plugin.library.paths",
            "security.providers",
            "ssl.provider",
            "ssl.providers",
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
