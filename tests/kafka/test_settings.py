"""Translation of Java settings to librdkafka. Real clients check the results, without a broker."""

import re
import traceback

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.address import parse_kafka_url
from spark_cas.log.kafka.settings.client_settings import (
    BY_JAVA_NAME,
    REFUSALS,
    SETTINGS,
    UNUSED,
    Client,
    holds_instead,
    log_ignored,
    reason_against,
)
from spark_cas.log.kafka.settings.sasl import check_transport, log_unencrypted
from spark_cas.log.kafka.settings.secrets import resolve
from spark_cas.log.kafka.settings.translate import ALLOWED, for_client, librdkafka_settings

CANARY = "canary\\\"'=;"  # unquoted, it is not a valid value of any setting or login
NOBODY = "127.0.0.1:1"

EVERY, PRODUCER, CONSUMER = set(Client), {Client.PRODUCER}, {Client.CONSUMER}
BIG = str(2**31 - 1)

# Java's name, the values to set, librdkafka's name, its values then, and the clients that accept the setting.
TABLE = [
    ("batch.size", ["1", BIG], "batch.size", ["1", BIG], PRODUCER),
    ("check.crcs", ["true", "FALSE"], "check.crcs", ["true", "false"], CONSUMER),
    ("client.dns.lookup", ["use_all_dns_ips"], "client.dns.lookup", ["use_all_dns_ips"], EVERY),
    ("client.id", ["loader 1"], "client.id", ["loader 1"], EVERY),
    ("client.rack", ["eu-1a"], "client.rack", ["eu-1a"], EVERY),
    (
        "compression.type",
        ["none", "gzip", "snappy", "lz4", "ZSTD"],
        "compression.type",
        ["none", "gzip", "snappy", "lz4", "zstd"],
        PRODUCER,
    ),
    ("connections.max.idle.ms", ["-1", "1", BIG], "connections.max.idle.ms", ["0", "1", BIG], EVERY),
    ("delivery.timeout.ms", ["1", BIG], "message.timeout.ms", ["1", BIG], PRODUCER),
    ("enable.metrics.push", ["true", "false"], "enable.metrics.push", ["true", "false"], EVERY),
    ("fetch.max.bytes", ["1000000", "2147483135"], "fetch.max.bytes", ["1000000", "2147483135"], CONSUMER),
    ("fetch.max.wait.ms", ["0", "59000"], "fetch.wait.max.ms", ["0", "59000"], CONSUMER),
    ("fetch.min.bytes", ["1", "100000000"], "fetch.min.bytes", ["1", "100000000"], CONSUMER),
    ("max.in.flight.requests.per.connection", ["1", "5"], "max.in.flight", ["1", "5"], PRODUCER),
    ("max.partition.fetch.bytes", ["1", "1000000000"], "max.partition.fetch.bytes", ["1", "1000000000"], CONSUMER),
    ("max.request.size", ["1000", "1000000000"], "message.max.bytes", ["1000", "1000000000"], PRODUCER),
    ("metadata.max.age.ms", ["1", "3600000"], "topic.metadata.refresh.interval.ms", ["1", "3600000"], EVERY),
    (
        "metadata.recovery.rebootstrap.trigger.ms",
        ["0", BIG],
        "metadata.recovery.rebootstrap.trigger.ms",
        ["0", BIG],
        EVERY,
    ),
    (
        "metadata.recovery.strategy",
        ["none", "rebootstrap"],
        "metadata.recovery.strategy",
        ["none", "rebootstrap"],
        EVERY,
    ),
    ("receive.buffer.bytes", ["-1", "100000000"], "socket.receive.buffer.bytes", ["0", "100000000"], EVERY),
    ("reconnect.backoff.max.ms", ["100", "3600000"], "reconnect.backoff.max.ms", ["100", "3600000"], EVERY),
    ("reconnect.backoff.ms", ["0", "3600000"], "reconnect.backoff.ms", ["0", "3600000"], EVERY),
    ("request.timeout.ms", ["1500", "300000"], "socket.timeout.ms", ["1500", "300000"], EVERY),
    ("retry.backoff.max.ms", ["100", "300000"], "retry.backoff.max.ms", ["100", "300000"], EVERY),
    ("retry.backoff.ms", ["1", "1000"], "retry.backoff.ms", ["1", "1000"], EVERY),
    ("send.buffer.bytes", ["-1", "1"], "socket.send.buffer.bytes", ["0", "1"], EVERY),
    (
        "socket.connection.setup.timeout.ms",
        ["1000", BIG],
        "socket.connection.setup.timeout.ms",
        ["1000", BIG],
        EVERY,
    ),
]
ROWS = [
    pytest.param(java, value, rdkafka, becomes, clients, id=f"{java}={value}")
    for java, values, rdkafka, found, clients in TABLE
    for value, becomes in zip(values, found, strict=True)
]

MALFORMED = {
    "batch.size": ["0", "-1", "2147483648", "1e3", "1.0", "", "٣", "9" * 5000],
    "check.crcs": ["yes", "1"],
    "client.dns.lookup": ["default", "resolve_canonical_bootstrap_servers_only"],
    "client.id": ["", " ", "a\0b"],
    "client.rack": [""],
    "compression.type": ["inherit", "lz 4"],
    "connections.max.idle.ms": ["0", "-2"],
    "delivery.timeout.ms": ["0"],
    "enable.metrics.push": ["t"],
    "fetch.max.bytes": ["999999", "2147483136"],
    "fetch.max.wait.ms": ["-1", "300001"],
    "fetch.min.bytes": ["0", "100000001"],
    "max.in.flight.requests.per.connection": ["0", "6", "-1", "2.5", "", "five"],
    "max.partition.fetch.bytes": ["0", "1000000001"],
    "max.request.size": ["999", "1000000001"],
    "metadata.max.age.ms": ["0", "-1", "3600001"],
    "metadata.recovery.rebootstrap.trigger.ms": ["-1"],
    "metadata.recovery.strategy": ["REBOOT"],
    "receive.buffer.bytes": ["0", "-2", "100000001"],
    "reconnect.backoff.max.ms": ["-1", "3600001"],
    "reconnect.backoff.ms": ["-1", "3600001"],
    "request.timeout.ms": ["9", "300001"],
    "retry.backoff.max.ms": ["0", "300001"],
    "retry.backoff.ms": ["0", "300001"],
    "security.protocol": ["TLS", ""],
    "send.buffer.bytes": ["0"],
    "socket.connection.setup.timeout.ms": ["999"],
}

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
TOKENS = "http://127.0.0.1:1/token"


def sasl(mechanism: str, jaas: str | None, protocol: str = "SASL_SSL", **more: str) -> dict[str, str]:
    given = {"security.protocol": protocol, "sasl.mechanism": mechanism, **more}
    return given if jaas is None else {**given, "sasl.jaas.config": jaas}


def login(module: str, options: str = 'username="u" password="p"') -> str:
    return f"{module} required {options};"


def refusal(java: dict[str, str]) -> str:
    """Return the text of the refusal, after a check that it and its traceback contain no value."""
    with pytest.raises(OptionError) as refused:
        librdkafka_settings(java)
    assert "canary" not in "".join(traceback.format_exception(refused.value))
    assert "kafka." in str(refused.value)
    return str(refused.value)


def start(client: Client, settings: dict[str, str]) -> None:
    """Create a real client. It rejects unknown names and malformed values, and warns of other clients' settings."""
    config: dict[str, str | int | float | bool] = {"bootstrap.servers": NOBODY, "log_level": 4, **settings}
    match client:
        case Client.PRODUCER:
            Producer(config)
        case Client.CONSUMER:
            Consumer({"group.id": "g", **config}).close()
        case Client.ADMIN:
            AdminClient(config)


def warnings_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if "CONFWARN" in line]


def test_the_table_above_has_every_setting():
    assert [row[0] for row in TABLE] == sorted(BY_JAVA_NAME)
    assert MALFORMED.keys() == {*BY_JAVA_NAME, "security.protocol"}
    assert len({setting.rdkafka for setting in SETTINGS}) == len(SETTINGS)


@pytest.mark.parametrize(("java", "value", "rdkafka", "becomes", "clients"), ROWS)
def test_a_setting_is_translated(java, value, rdkafka, becomes, clients):
    pairs = dict(librdkafka_settings({java: value}))
    assert pairs[rdkafka] == becomes
    assert pairs.keys() - {rdkafka} <= {"reconnect.backoff.max.ms"}
    assert BY_JAVA_NAME[java].clients == clients


@pytest.mark.parametrize(("java", "value"), [(java, value) for java, values, *_ in TABLE for value in values])
def test_a_client_takes_its_settings_without_a_warning(java, value, capfd):
    pairs = librdkafka_settings({java: value})
    rdkafka, clients = BY_JAVA_NAME[java].rdkafka, BY_JAVA_NAME[java].clients
    for client in Client:
        taken = dict(for_client(pairs, client))
        assert (rdkafka in taken) == (client in clients)
        start(client, taken)
    assert warnings_in(capfd.readouterr().err) == []


def test_client_rejects_or_warns_of_foreign_settings(capfd):
    with pytest.raises(KafkaException):
        start(Client.ADMIN, {"ssl.keystore.type": "PEM"})
    with pytest.raises(KafkaException):
        start(Client.PRODUCER, {"batch.size": "0"})
    start(Client.CONSUMER, dict(librdkafka_settings({"batch.size": "5"})))
    assert len(warnings_in(capfd.readouterr().err)) == 1


@pytest.mark.parametrize(("java", "value"), [(java, value) for java in MALFORMED for value in MALFORMED[java]])
def test_a_value_that_the_client_would_refuse_is_refused_by_name(java, value):
    kinds = "a whole number|one of|a text that is not empty|use_all_dns_ips"
    assert re.search(rf"kafka\.{re.escape(java)} must be (-1 or )?({kinds})", refusal({java: value}))


def test_names_have_any_case_and_pairs_are_sorted():
    pairs = librdkafka_settings({"Retry.Backoff.MS": "5", "client.id": "a", "BATCH.SIZE": "1"})
    assert pairs == (("batch.size", "1"), ("client.id", "a"), ("retry.backoff.ms", "5"))
    assert librdkafka_settings({}) == ()
    assert "twice" in refusal({"batch.size": "5", "BATCH.size": "5"})


def test_the_first_wait_before_reconnecting_sets_the_longest_one_too():
    assert librdkafka_settings({"reconnect.backoff.ms": "20000"})[0] == ("reconnect.backoff.max.ms", "20000")
    assert "must be at least kafka." in refusal({"reconnect.backoff.ms": "5000", "reconnect.backoff.max.ms": "4999"})


def test_a_fetch_waits_for_less_than_a_request():
    assert "1000 above" in refusal({"request.timeout.ms": "1499"})
    assert "1000 above" in refusal({"fetch.max.wait.ms": "59001"})
    assert "1000 above" in refusal({"fetch.max.wait.ms": "9001", "request.timeout.ms": "10000"})
    given = {"fetch.max.wait.ms": "299000", "request.timeout.ms": "300000"}
    start(Client.CONSUMER, dict(librdkafka_settings(given)))


OWNED = [
    ("acks", "min.insync.replicas"),
    ("auto.offset.reset", "startingOffsets"),
    ("bootstrap.servers", "kafka.bootstrap.servers"),
    ("enable.auto.commit", "startingOffsets"),
    ("enable.idempotence", "Option idempotence sets"),
    ("interceptor.classes", "run code"),
    ("isolation.level", "committed records"),
    ("key.deserializer", "bytes"),
    ("key.serializer", "bytes"),
    ("partitioner.class", "spark_cas.route"),
    ("transaction.two.phase.commit.enable", "block readers"),
    ("transactional.id", "option job"),
    ("value.deserializer", "bytes"),
    ("value.serializer", "bytes"),
]
RUNS_CODE = [
    ("config.providers.file.class", "run code"),
    ("debug", "log of every worker"),
    ("of.my.own.class", "run code"),
    ("plugin.library.paths", "library"),
    ("sasl.client.callback.handler.class", "no handler"),
    ("sasl.kerberos.kinit.cmd", "never another command"),
    ("sasl.kerberos.service.name", "libsasl2"),
    ("sasl.login.callback.handler.class", "no handler"),
    ("security.providers", "library"),
    ("ssl.engine.factory.class", "library"),
    ("ssl.engine.location", "library"),
    ("ssl.provider", "library"),
    ("ssl.providers", "library"),
]
ELSEWHERE = [
    ("compression.codec", None),  # a name of librdkafka that no row has: the error suggests the nearest one
    ("enable.ssl.certificate.verification", "kafka.ssl.truststore.location"),
    ("fetch.wait.max.ms", "Write kafka.fetch.max.wait.ms"),
    ("message.timeout.ms", "Write kafka.delivery.timeout.ms"),
    ("sasl.mechanisms", "Write kafka.sasl.mechanism"),
    ("sasl.password", "kafka.sasl.jaas.config"),
    ("ssl.ca.location", "kafka.ssl.truststore.location"),
    ("ssl.key.pem", "kafka.ssl.keystore.key"),
]


@pytest.mark.parametrize(("name", "says"), [*OWNED, *RUNS_CODE, *ELSEWHERE])
def test_rejected_setting_names_the_fix(name, says):
    text = refusal({name: CANARY, "batch.size": "5"})
    assert f"option kafka.{name} may not be set." in text
    assert says is None or says in text


HARMLESS = [
    (name, value, each.instead) for each in UNUSED for name in each.names for value in each.values or (CANARY, "")
]


@pytest.mark.parametrize(("name", "value", "instead"), HARMLESS)
def test_harmless_setting_is_accepted_and_reported(name, value, instead):
    assert librdkafka_settings({name.upper(): value.upper(), "batch.size": "5"}) == (("batch.size", "5"),)
    assert holds_instead(name, value) == instead
    assert name not in ALLOWED


def test_setting_without_effect_is_reported_once_without_its_value(caplog):
    log_ignored.cache_clear()
    for _ in range(2):
        parse_kafka_url("kafka://a:9092/flights", {"Group.Id": CANARY, "batch.size": "1"})
    told = [each.getMessage() for each in caplog.records]
    assert told == [
        "option kafka.group.id has no effect here. The client joins no consumer group.",
    ]


def test_a_misspelt_setting_is_answered_with_the_nearest():
    assert "Did you mean kafka.batch.size?" in refusal({"batch.sise": CANARY})
    assert "Did you mean kafka.compression.type?" in refusal({"compression.typ": CANARY})
    assert "Did you mean" not in refusal({"zzz": CANARY})


REFUSED = sorted(
    {name for each in REFUSALS for name in each.names}
    | {f"{prefix}x" for each in REFUSALS for prefix in each.prefixes}
    | {f"x{suffix}" for each in REFUSALS for suffix in each.suffixes}
)


@pytest.mark.parametrize("name", REFUSED)
def test_setting_is_rejected_with_its_reason(name):
    assert name not in ALLOWED
    reason = reason_against(name)
    assert reason is not None
    assert reason in refusal({name: CANARY})


@pytest.mark.parametrize("name", sorted(ALLOWED))
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("value", [CANARY, "", "env:canary"])
def test_errors_show_no_value(name, protocol, value):
    given = {**sasl("SCRAM-SHA-256", login(SCRAM), protocol), name: value}
    if "SASL" not in protocol:
        given = {"security.protocol": protocol, name: value}
    accepted = {"client.id", "client.rack"}
    if "SSL" in protocol and value == CANARY:
        accepted.add("ssl.truststore.location")  # the file is read when a client is created
    if name not in accepted or not value:
        refusal(given)


# Security


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "ssl", "SASL_PLAINTEXT", "Sasl_Ssl"])
def test_protocol_has_any_case(protocol):
    given = sasl("PLAIN", login(PLAIN), protocol) if "sasl" in protocol.lower() else {"security.protocol": protocol}
    pairs = librdkafka_settings(given)
    assert dict(pairs)["security.protocol"] == protocol.lower()
    for client in Client:
        start(client, dict(for_client(pairs, client)))


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", PLAIN),
        ("SCRAM-SHA-256", SCRAM),
        ("scram-sha-512", SCRAM),
        ("SCRAM-SHA-512", f"kafkashaded.{SCRAM}"),
    ],
)
def test_a_password_login_makes_clients(mechanism, module):
    pairs = librdkafka_settings(sasl(mechanism, login(module, 'password="p\\"\\\\;" username=u')))
    assert dict(pairs) == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": mechanism.upper(),
        "sasl.username": "u",
        "sasl.password": 'p"\\;',
    }
    for client in Client:
        start(client, dict(for_client(pairs, client)))


OIDC = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": TOKENS,
    "sasl.oauthbearer.client.id": "i",
    "sasl.oauthbearer.client.secret": "s",
}


@pytest.mark.parametrize(
    "given",
    [
        sasl("OAUTHBEARER", login(OAUTH, "clientSecret='s' clientId=i"), **{URL: TOKENS}),
        sasl("OAUTHBEARER", login(OAUTH, ""), **{URL: TOKENS, CLIENT_ID: "i", CLIENT_SECRET: "s"}),
        sasl("OAUTHBEARER", None, **{URL: TOKENS, CLIENT_ID: "i", CLIENT_SECRET: "s"}),
    ],
)
def test_an_oauth_login_makes_clients(given):
    pairs = librdkafka_settings(given)
    assert dict(pairs) == OIDC
    for client in Client:
        start(client, dict(for_client(pairs, client)))


def test_an_oauth_login_takes_a_scope_and_extensions():
    options = 'clientId=i clientSecret=s scope="a b" extension_pool="p-1" extension_cluster=lkc'
    pairs = librdkafka_settings(sasl("OAUTHBEARER", login(OAUTH, options), **{URL: TOKENS}))
    more = {"sasl.oauthbearer.scope": "a b", "sasl.oauthbearer.extensions": "cluster=lkc,pool=p-1"}
    assert dict(pairs) == {**OIDC, **more}
    start(Client.PRODUCER, dict(pairs))


TRUSTING = "clientId=i clientSecret=s ssl.truststore.type={} ssl.truststore.location={}"


def test_an_oauth_login_trusts_the_authorities_of_a_file(tmp_path):
    path = tmp_path / "ca.pem"
    options = TRUSTING.format("pem", f"'{path}'")
    pairs = librdkafka_settings(sasl("OAUTHBEARER", login(OAUTH, options), **{URL: TOKENS}))
    assert dict(pairs) == {**OIDC, "https.ca.location": str(path)}


@pytest.mark.parametrize(
    "options",
    [
        TRUSTING.format("PKCS12", "'/ca.p12'"),
        TRUSTING.format("PEM", "'env:CA'"),
        "clientId=i clientSecret=s ssl.truststore.type=PEM",
        "clientId=i clientSecret=s ssl.truststore.location='/ca.pem'",
    ],
)
def test_an_oauth_login_with_another_trust_store_is_rejected(options):
    with pytest.raises(OptionError, match="the trust store of the token endpoint"):
        librdkafka_settings(sasl("OAUTHBEARER", login(OAUTH, options), **{URL: TOKENS}))


SECRET_LOGIN = login(SCRAM, 'username="u" password="canary"')
OAUTH_LOGIN = login(OAUTH, "clientId=canary clientSecret=canary")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": SECRET_LOGIN}, "kafka.security.protocol is missing"),
        ({"ssl.truststore.certificates": "canary"}, "kafka.security.protocol is missing"),
        (sasl("SCRAM-SHA-256", SECRET_LOGIN, "SSL"), "kafka.security.protocol is SSL"),
        ({**sasl("PLAIN", None, "SASL_PLAINTEXT"), "ssl.key.password": "canary"}, "is missing: kafka.sasl.mechanism"),
        (
            {**sasl("SCRAM-SHA-256", SECRET_LOGIN, "SASL_PLAINTEXT"), "ssl.key.password": "canary"},
            "kafka.security.protocol is SASL_PLAINTEXT",
        ),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is missing"),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": SECRET_LOGIN}, "kafka.sasl.mechanism is missing"),
        (sasl("GSSAPI", SECRET_LOGIN), "libsasl2"),
        (sasl("OAUTHBEARER", OAUTH_LOGIN, **{URL: TOKENS, "sasl.oauthbearer.scope": " "}), "not empty"),
        (sasl("canary", SECRET_LOGIN), "must be one of PLAIN, "),
        (sasl("SCRAM-SHA-256", None), "kafka.sasl.jaas.config is missing"),
        (sasl("PLAIN", SECRET_LOGIN), "another login module than PlainLoginModule"),
        (sasl("OAUTHBEARER", SECRET_LOGIN), "another login module than OAuthBearerLoginModule"),
        (sasl("PLAIN", login(PLAIN, "username=canary")), "exactly username and password"),
        (sasl("PLAIN", login(PLAIN, 'username=canary password=""')), "exactly username and password"),
        (sasl("SCRAM-SHA-256", login(SCRAM, "username=u password=canary tokenauth=true")), "Delegation tokens"),
        (
            sasl("SCRAM-SHA-256", SECRET_LOGIN, **{CLIENT_SECRET: "canary"}),
            "only for kafka.sasl.mechanism",
        ),
        (sasl("OAUTHBEARER", OAUTH_LOGIN), URL),
        (sasl("OAUTHBEARER", OAUTH_LOGIN, **{URL: "http://canary/token"}), "https://"),
        (sasl("OAUTHBEARER", OAUTH_LOGIN, **{URL: "file:///canary"}), "https://"),
        (sasl("OAUTHBEARER", OAUTH_LOGIN, **{URL: "https://[canary"}), "https://"),
        (sasl("OAUTHBEARER", OAUTH_LOGIN, **{URL: TOKENS, CLIENT_SECRET: "canary"}), "Leave one out"),
        (sasl("OAUTHBEARER", login(OAUTH, "clientId=canary"), **{URL: TOKENS}), "clientSecret"),
        (sasl("OAUTHBEARER", login(OAUTH, "canary=canary"), **{URL: TOKENS}), "has another name"),
        (
            sasl("OAUTHBEARER", login(OAUTH, 'clientId=i clientSecret=s extension_a="b,canary"'), **{URL: TOKENS}),
            "extension_<name>",
        ),
        (
            sasl("OAUTHBEARER", login(OAUTH, "clientId=i clientSecret=s extension_canary1=b"), **{URL: TOKENS}),
            "extension_<name>",
        ),
    ],
)
def test_a_login_that_cannot_work_is_refused(given, says):
    assert says in refusal(given)


MANY = "127.0.0.1:9092, localhost:1,[::1]:9093 ,127.8.9.1,"


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_plaintext_secret_is_allowed_only_on_this_machine(mechanism):
    pairs = (("security.protocol", "sasl_plaintext"), ("sasl.mechanism", mechanism))
    check_transport(MANY, pairs)
    for bootstrap in (
        "canary:9092",
        "127.0.0.1:9092,canary:9092",
        "128.0.0.1:9092",
        "127.0.0.1.canary:9092",
        "localhost@canary:9092",
        "canary://127.0.0.1:9092",
        "[127.0.0.1]canary:9092",
        "127.0.0.1:9092/canary",
        "[fe80::1]:9092",
        "0.0.0.0:9092",
        "",
        ",",
    ):
        with pytest.raises(OptionError, match="SASL_SSL") as refused:
            check_transport(bootstrap, pairs)
        assert "canary" not in str(refused.value)


def test_encrypted_or_public_settings_are_allowed_everywhere():
    check_transport("broker:9092", ())
    check_transport("broker:9092", (("security.protocol", "sasl_ssl"), ("sasl.mechanism", "PLAIN")))
    check_transport("broker:9092", librdkafka_settings(sasl("SCRAM-SHA-256", login(SCRAM), "SASL_PLAINTEXT")))


def test_translation_rejects_an_unsafe_transport():
    pairs = librdkafka_settings(sasl("PLAIN", login(PLAIN), "SASL_PLAINTEXT"))
    with pytest.raises(OptionError):
        check_transport("broker:9092", pairs)
    assert resolve(pairs) == dict(pairs)


def test_rows_in_the_clear_are_reported_once(caplog):
    log_unencrypted.cache_clear()
    scram = (("security.protocol", "sasl_plaintext"), ("sasl.mechanism", "SCRAM-SHA-512"))
    check_transport(MANY, scram)
    check_transport("canary:9092", (("security.protocol", "sasl_ssl"), ("sasl.mechanism", "SCRAM-SHA-512")))
    assert not caplog.records
    for _ in range(2):
        check_transport("canary:9092", scram)
    (told,) = [each.getMessage() for each in caplog.records]
    assert "unencrypted" in told
    assert "canary" not in told
