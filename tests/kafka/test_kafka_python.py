"""The settings of kafka-python, from those of librdkafka."""

import ssl

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.topic.open_transactions import kafka_python_settings

BASE = {"bootstrap.servers": "a:9092, b:9092", "socket.timeout.ms": 10_000}
SECRET = "canary-of-a-secret"


def test_plaintext():
    settings = kafka_python_settings(BASE | {"client.id": "me"})
    assert settings["bootstrap_servers"] == ["a:9092", "b:9092"]
    assert (settings["security_protocol"], settings["client_id"]) == ("PLAINTEXT", "me")
    assert "ssl_context" not in settings


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_and_password(mechanism):
    login = {"sasl.mechanism": mechanism, "sasl.username": "me", "sasl.password": SECRET}
    settings = kafka_python_settings(BASE | {"security.protocol": "sasl_ssl"} | login)
    assert settings["security_protocol"] == "SASL_SSL"
    assert [settings[f"sasl_{name}"] for name in ("mechanism", "plain_username", "plain_password")] == [
        mechanism,
        "me",
        SECRET,
    ]


def test_tls_verifies_the_name_and_the_certificate():
    context = kafka_python_settings(BASE | {"security.protocol": "ssl"})["ssl_context"]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "settings",
    [
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "ssl", "ssl.keystore.location": f"/{SECRET}", "ssl.keystore.password": SECRET},
        {"security.protocol": "ssl", "ssl.certificate.pem": SECRET, "ssl.key.pem": SECRET},
        {"security.protocol": "ssl", "ssl.ca.location": f"/{SECRET}"},
        {"security.protocol": "ssl", "ssl.ca.pem": SECRET},
    ],
)
def test_unsupported_setting_is_named_without_its_value(settings):
    with pytest.raises(OptionError) as raised:
        kafka_python_settings(BASE | settings)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
