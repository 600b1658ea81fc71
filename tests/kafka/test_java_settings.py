"""All settings of Kafka's Java client. According to Spark's guide, users set them as ``kafka.<name>``.

They are those of ``ProducerConfig.configNames()`` and ``ConsumerConfig.configNames()`` of kafka-clients 4.1.1, which
the guide (docs/streaming/structured-streaming-kafka-integration.md, "Kafka Specific Configurations") refers to.
"""

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.client_settings import log_ignored
from spark_cas.options.parse import parse_read, parse_route, parse_write
from tools.options_page import render


def words(text):
    return text.split()


HONOURED = words("""
    batch.size check.crcs client.dns.lookup client.id client.rack compression.type
    connections.max.idle.ms delivery.timeout.ms enable.metrics.push fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes max.in.flight.requests.per.connection max.partition.fetch.bytes max.request.size
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
    sasl.jaas.config sasl.mechanism sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
    security.protocol send.buffer.bytes socket.connection.setup.timeout.ms ssl.endpoint.identification.algorithm
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type
""")
TAKEN = words("""
    auto.commit.interval.ms buffer.memory compression.gzip.level compression.lz4.level compression.zstd.level
    default.api.timeout.ms group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported linger.ms max.block.ms
    max.poll.interval.ms max.poll.records metadata.max.idle.ms metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms retries
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name session.timeout.ms
    share.acknowledgement.mode socket.connection.setup.timeout.max.ms ssl.keymanager.algorithm ssl.cipher.suites
    ssl.enabled.protocols ssl.protocol ssl.secure.random.implementation ssl.trustmanager.algorithm
    transaction.timeout.ms
""")
TAKEN_FOR_WHAT_HOLDS_ANYWAY = {
    "acks": ("all", "1"),
    "allow.auto.create.topics": ("false", "true"),
    "enable.idempotence": ("true", "false"),
    "exclude.internal.topics": ("true", "false"),
    "isolation.level": ("read_committed", "read_uncommitted"),
    "partitioner.ignore.keys": ("false", "true"),
    "sasl.oauthbearer.header.urlencode": ("false", "true"),
    "transaction.two.phase.commit.enable": ("false", "true"),
}
"""An accepted value and a rejected one."""
REFUSED = words("""
    auto.offset.reset bootstrap.servers enable.auto.commit interceptor.classes key.deserializer key.serializer
    partitioner.class sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class security.providers ssl.engine.factory.class ssl.provider transactional.id
    value.deserializer value.serializer
""")

TOPIC = {"kafka.bootstrap.servers": "a:9092", "topic": "flights"}
HARMLESS = [(name, "1") for name in TAKEN] + [
    (name, taken) for name, (taken, _) in TAKEN_FOR_WHAT_HOLDS_ANYWAY.items()
]
HARMFUL = [(name, "1") for name in REFUSED] + [
    (name, refused) for name, (_, refused) in TAKEN_FOR_WHAT_HOLDS_ANYWAY.items()
]
LIMITED = "known to be safe"
"""The text of the error for an unknown setting."""


@pytest.fixture(autouse=True)
def told_anew(monkeypatch):
    monkeypatch.delenv("SPARK_CAS_CONF", raising=False)
    log_ignored.cache_clear()


def page_of_settings():
    return render().partition("## Settings of Kafka's clients")[2]


@pytest.mark.parametrize("name", HONOURED)
def test_setting_with_an_equivalent_is_used(name, caplog):
    """The test uses an invalid value. tests/kafka/test_settings.py tests the translation of valid ones."""
    with pytest.raises(OptionError) as caught:
        parse_write({**TOPIC, f"kafka.{name}": "\0"})
    assert "may not be set" not in str(caught.value)
    assert not caplog.records
    assert f"`{name}`" in page_of_settings()


@pytest.mark.parametrize("parse", [parse_read, parse_write, parse_route])
@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_harmless_setting_is_accepted_and_reported(parse, name, value, caplog):
    for _ in range(2):
        parse({**TOPIC, f"kafka.{name}": value})
    (told,) = [each.getMessage() for each in caplog.records]
    assert told.startswith(f"option kafka.{name} has no effect here. ")
    with_it, without = parse_write({**TOPIC, f"kafka.{name}": value}), parse_write(TOPIC)
    assert with_it.spec == without.spec, "no client gets the setting"


@pytest.mark.parametrize("parse", [parse_read, parse_write, parse_route])
@pytest.mark.parametrize(("name", "value"), HARMFUL)
def test_unsafe_setting_is_rejected_with_the_reason(parse, name, value):
    with pytest.raises(OptionError) as caught:
        parse({**TOPIC, f"kafka.{name}": value})
    assert name in str(caught.value)
    assert LIMITED not in str(caught.value)
