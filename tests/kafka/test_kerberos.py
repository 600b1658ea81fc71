"""The settings of a Kerberos login, with a client library that has Kerberos and with one that lacks it."""

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings import kerberos
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.settings.translate import librdkafka_settings
from spark_cas.options.parse import parse_write

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KEYTAB = "/etc/security/loader.keytab"
PRINCIPAL = "loader/host.example.com@EXAMPLE.COM"
OF_SPARK_USERS = (
    f'{MODULE} useKeyTab=true storeKey=true keyTab="{KEYTAB}" principal="{PRINCIPAL}" serviceName="kafka";'
)
FROM_CACHE = f"{MODULE} useTicketCache=true;"


@pytest.fixture
def with_kerberos(monkeypatch):
    """Pretend that the client library has Kerberos."""
    monkeypatch.setattr(kerberos, "client_has_kerberos", lambda: True)


def settings(mechanism="GSSAPI", jaas=None, protocol="SASL_SSL", **names):
    given = {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    given |= {f"sasl.kerberos.{name.replace('_', '.')}": value for name, value in names.items()}
    return {name: value for name, value in given.items() if value is not None}


def login_of(given):
    return {name: value for name, value in librdkafka_settings(given) if name != "security.protocol"}


@pytest.mark.parametrize(
    "given",
    [
        settings(),
        settings(mechanism=None, jaas=OF_SPARK_USERS),
        settings(service_name="kafka"),
        settings("SCRAM-SHA-512", OF_SPARK_USERS),
    ],
)
def test_published_client_rejects_kerberos_and_names_the_build(given):
    with pytest.raises(OptionError, match="built from source, with a librdkafka that has libsasl2"):
        librdkafka_settings(given)


@pytest.mark.usefixtures("with_kerberos")
@pytest.mark.parametrize(
    "given",
    [
        settings(jaas=OF_SPARK_USERS),
        settings(mechanism=None, jaas=OF_SPARK_USERS),
        settings(jaas=OF_SPARK_USERS, service_name="kafka"),
        settings(service_name="kafka", principal=PRINCIPAL, keytab=KEYTAB),
    ],
)
def test_login_with_a_keytab_is_translated(given):
    assert login_of(given) == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": PRINCIPAL,
        "sasl.kerberos.keytab": KEYTAB,
    }


@pytest.mark.usefixtures("with_kerberos")
def test_options_of_a_write_take_the_login():
    given = {f"kafka.{name}": value for name, value in settings(jaas=FROM_CACHE, service_name="kafka").items()}
    spec = parse_write({"kafka.bootstrap.servers": "broker:9092", "topic": "flights", "job": "load-1", **given}).spec
    assert isinstance(spec, KafkaSpec)
    assert dict(spec.client_options)["sasl.kerberos.service.name"] == "kafka"


@pytest.mark.usefixtures("with_kerberos")
@pytest.mark.parametrize("given", [settings(), settings(jaas=FROM_CACHE)])
def test_login_without_a_keytab_uses_the_ticket_cache(given):
    assert login_of(given) == {"sasl.mechanism": "GSSAPI", "sasl.kerberos.min.time.before.relogin": "0"}


@pytest.mark.usefixtures("with_kerberos")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (settings(principal="canary; touch /tmp/x", keytab=KEYTAB), "form"),
        (settings(principal="-canary", keytab=KEYTAB), "form"),
        (settings(principal=PRINCIPAL, keytab="/canary$(touch x)"), "form"),
        (settings(principal=PRINCIPAL, keytab='/canary"; touch x; "'), "form"),
        (settings(principal=PRINCIPAL, keytab="/canary`x`"), "form"),
        (settings(principal="env:CANARY", keytab=KEYTAB), "form"),
        (settings(service_name="canary x"), "form"),
        (settings(principal="canary"), "needs"),
        (settings(keytab=KEYTAB), "needs"),
        (settings(jaas=OF_SPARK_USERS, principal="canary"), "differs from principal"),
        (settings(jaas=f"{MODULE} canary=true;"), "another name"),
        (settings(kinit_cmd="canary"), "never another command"),
        (settings("PLAIN", OF_SPARK_USERS), "another login module than PlainLoginModule"),
        (settings("SCRAM-SHA-512", service_name="canary"), "only for kafka.sasl.mechanism GSSAPI"),
        (settings(protocol="SSL", mechanism=None, service_name="canary"), "kafka.security.protocol is SSL"),
        (settings("canary"), "must be one of .*, GSSAPI"),
    ],
)
def test_unsafe_or_contradictory_login_is_rejected_without_its_values(given, reason):
    with pytest.raises(OptionError, match=reason) as rejected:
        librdkafka_settings(given)
    assert "canary" not in str(rejected.value).lower()
