"""Key stores and trust stores, created with openssl and loaded by real clients. Runs without a broker."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.secrets import resolve
from spark_cas.log.kafka.settings.tls import (
    CONVERT_KEY_STORE,
    CONVERT_TRUST_STORE,
    CONVERT_TRUST_STORE_P12,
    TLS_NAMES,
)
from spark_cas.log.kafka.settings.translate import librdkafka_settings

PASSWORD = "canary-1"
OTHER = "canary-2"


def run(command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, shell=True, check=True, capture_output=True, stdin=subprocess.DEVNULL)  # noqa: S602


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A certificate with its key in every accepted form, and a key that belongs to another certificate."""
    folder = tmp_path_factory.mktemp("stores")
    for command in (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=client",
        "openssl genrsa -out other.pem 2048",
        f"openssl pkcs8 -topk8 -in key.pem -out locked.pem -passout pass:{PASSWORD}",
        "cat locked.pem cert.pem > both.pem",
        "cat key.pem cert.pem > open.pem",
        "cat other.pem cert.pem > mixed.pem",
        f"openssl pkcs12 -export -inkey key.pem -in cert.pem -name client -out client.p12 -passout pass:{PASSWORD}",
    ):
        run(command, folder)
    return folder


def tls(**given: str) -> dict[str, str]:
    """Return settings from the last part of their names: ``keystore_type`` for ``ssl.keystore.type``."""
    return {"security.protocol": "SSL", **{f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}}


def start(java: dict[str, str]) -> dict[str, str]:
    settings = resolve(librdkafka_settings(java))
    Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})
    return settings


def test_a_pem_file_holds_key_and_certificate(stores):
    path = str(stores / "both.pem")
    settings = start(tls(keystore_type="PEM", keystore_location=path, key_password=PASSWORD))
    assert settings == {
        "security.protocol": "ssl",
        "ssl.certificate.location": path,
        "ssl.key.location": path,
        "ssl.key.password": PASSWORD,
    }
    start(tls(keystore_type="pem", keystore_location=str(stores / "open.pem")))


def test_pem_texts_are_passed_directly(stores):
    chain, key = (stores / "cert.pem").read_text(), (stores / "locked.pem").read_text()
    given = tls(keystore_type="PEM", keystore_certificate_chain=chain, keystore_key=key, key_password=PASSWORD)
    settings = start(given)
    assert settings == {
        "security.protocol": "ssl",
        "ssl.certificate.pem": chain,
        "ssl.key.pem": key,
        "ssl.key.password": PASSWORD,
    }


def test_a_pkcs12_file_is_opened_with_its_password(stores):
    path = str(stores / "client.p12")
    given = tls(keystore_type="PKCS12", keystore_location=path, keystore_password=PASSWORD)
    settings = start(given)
    assert settings == {
        "security.protocol": "ssl",
        "ssl.keystore.location": path,
        "ssl.keystore.password": PASSWORD,
    }
    assert start({**given, "ssl.key.password": PASSWORD}) == settings


def test_a_trust_store_is_pem(stores):
    path = str(stores / "cert.pem")
    assert start(tls(truststore_type="PEM", truststore_location=path))["ssl.ca.location"] == path
    text = Path(path).read_text()
    assert start(tls(truststore_type="PEM", truststore_certificates=text))["ssl.ca.pem"] == text


def test_references_are_resolved_and_loaded(stores, monkeypatch):
    monkeypatch.setenv("KEY_PASSWORD", PASSWORD)
    start(
        tls(
            keystore_type="PEM",
            keystore_certificate_chain=f"file:{stores / 'cert.pem'}",
            keystore_key=f"file:{stores / 'locked.pem'}",
            key_password="env:KEY_PASSWORD",
            truststore_type="PEM",
            truststore_certificates=f"file:{stores / 'cert.pem'}",
        )
    )


def test_a_client_does_open_the_stores(stores):
    for bad in (
        tls(keystore_type="PEM", keystore_location=str(stores / "both.pem"), key_password=OTHER),
        tls(keystore_type="PEM", keystore_location=str(stores / "mixed.pem")),
        tls(keystore_type="PKCS12", keystore_location=str(stores / "client.p12"), keystore_password=OTHER),
        tls(truststore_type="PEM", truststore_location=str(stores / "none.pem")),
        tls(truststore_type="PEM", truststore_certificates="canary"),
    ):
        with pytest.raises(KafkaException):
            start(bad)


def test_host_names_are_always_checked():
    assert start(tls(endpoint_identification_algorithm="HTTPS"))["ssl.endpoint.identification.algorithm"] == "https"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (tls(endpoint_identification_algorithm=""), "must be https"),
        (tls(endpoint_identification_algorithm="none"), "pose as the broker"),
        (tls(keystore_location="canary.jks", keystore_password="canary"), CONVERT_KEY_STORE),
        (tls(keystore_type="JKS", keystore_location="canary", keystore_password="canary"), CONVERT_KEY_STORE),
        (tls(keystore_type="canary"), "PKCS12 or PEM"),
        (tls(key_password="canary"), "kafka.ssl.keystore.type"),
        (tls(truststore_location="canary.jks", truststore_password="canary"), CONVERT_TRUST_STORE),
        (tls(truststore_type="JKS", truststore_location="canary"), CONVERT_TRUST_STORE),
        (tls(truststore_type="PKCS12", truststore_location="canary"), CONVERT_TRUST_STORE_P12),
        (tls(truststore_type="PEM", truststore_location="canary", truststore_password="canary"), "no password"),
        (tls(truststore_type="PEM"), "give one of the two"),
        (tls(truststore_type="PEM", truststore_certificates=" "), "not empty"),
        (tls(keystore_type="PKCS12", keystore_location="canary", keystore_password="canary\0"), "not empty"),
        (
            tls(truststore_type="PEM", truststore_location="canary", truststore_certificates="canary"),
            "give one of the two",
        ),
        (tls(truststore_type="PEM", truststore_location="env:canary"), "plain path"),
        (tls(keystore_type="PEM", keystore_location="file:canary"), "plain path"),
        (tls(keystore_type="PEM", keystore_location="canary", keystore_password="canary"), "kafka.ssl.key.password"),
        (tls(keystore_type="PEM"), "the one or the other"),
        (tls(keystore_type="PEM", keystore_key="canary"), "the one or the other"),
        (tls(keystore_type="PEM", keystore_location="canary", keystore_key="canary"), "the one or the other"),
        (tls(keystore_type="PKCS12", keystore_location="canary"), "with a password"),
        (tls(keystore_type="PKCS12", keystore_password="canary"), "with a password"),
        (
            tls(
                keystore_type="PKCS12", keystore_location="canary", keystore_password="canary", keystore_key="canary"
            ),
            "with a password",
        ),
        (
            tls(
                keystore_type="PKCS12",
                keystore_location="canary",
                keystore_password="canary",
                key_password="canary-2",
            ),
            "differs",
        ),
        (tls(keystore_type="PKCS12", keystore_location="env:canary", keystore_password="canary"), "plain path"),
    ],
)
def test_stores_that_cannot_be_read_are_refused(given, says):
    with pytest.raises(OptionError) as refused:
        librdkafka_settings(given)
    assert says in str(refused.value)
    assert "canary" not in str(refused.value)


def test_every_setting_of_a_store_is_tried_here():
    tried = {
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        *(f"ssl.keystore.{part}" for part in ("certificate.chain", "key", "location", "password", "type")),
        *(f"ssl.truststore.{part}" for part in ("certificates", "location", "password", "type")),
    }
    assert tried == TLS_NAMES


@pytest.mark.spark  # keytool is part of Java
def test_the_commands_in_the_refusals_do_convert(stores, tmp_path):
    assert shutil.which("keytool"), "keytool is a part of Java, which the tests with a JVM need"
    shutil.copy(stores / "client.p12", tmp_path / "given.p12")
    store = f"-srckeystore given.p12 -srcstorepass {PASSWORD} -deststorepass {PASSWORD} -deststoretype"
    trusted = f"keytool -importcert -noprompt -alias ca -file {shlex.quote(str(stores / 'cert.pem'))}"
    for command in (
        f"keytool -importkeystore {store} JKS -destkeystore client.jks",
        f"{CONVERT_KEY_STORE} -srcstorepass {PASSWORD} -deststorepass {PASSWORD}",
        f"{trusted} -storetype JKS -keystore truststore.jks -storepass {PASSWORD}",
        f"{CONVERT_TRUST_STORE.replace(' >', f' -storepass {PASSWORD} >')}",
    ):
        run(command, tmp_path)
    p12 = str(tmp_path / "client.p12")
    start(tls(keystore_type="PKCS12", keystore_location=p12, keystore_password=PASSWORD))
    pem = tmp_path / "truststore.pem"
    start(tls(truststore_type="PEM", truststore_location=str(pem)))
    for command in (
        f"{trusted} -storetype PKCS12 -keystore truststore.p12 -storepass {PASSWORD}",
        "rm truststore.pem",
        f"{CONVERT_TRUST_STORE_P12} -passin pass:{PASSWORD}",
    ):
        run(command, tmp_path)
    assert "BEGIN CERTIFICATE" in pem.read_text()
    start(tls(truststore_type="PEM", truststore_location=str(pem)))
