"""Key stores and trust stores, created with openssl and loaded by real clients. Runs without a broker."""

import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.client.kafka_python import kafka_python_settings
from spark_cas.log.kafka.settings import tls as tls_module
from spark_cas.log.kafka.settings.secrets import resolve
from spark_cas.log.kafka.settings.tls import (
    CONVERT_KEY_STORE,
    CONVERT_KEY_STORE_P12,
    CONVERT_TRUST_STORE,
    CONVERT_TRUST_STORE_P12,
    TLS_NAMES,
    with_stores,
)
from spark_cas.log.kafka.settings.translate import librdkafka_settings
from tests.pages import ROOT

PASSWORD = "canary-1"
OTHER = "canary-2"
ACCENT = "canary-\N{LATIN SMALL LETTER E WITH ACUTE}"


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
    settings = with_stores(resolve(librdkafka_settings(java)))
    Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})
    kafka_python_settings({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000, **settings})
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
    text = f"Alias name: Zürich\n{Path(path).read_text()}"
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
        (tls(keystore_type="canary"), "PEM, PKCS12 or JKS"),
        (tls(key_password="canary"), "kafka.ssl.keystore.type"),
        (tls(truststore_type="canary"), "PEM, PKCS12 or JKS"),
        (tls(truststore_password="canary"), "a trust store is a file"),
        (tls(truststore_location="canary", truststore_certificates="canary"), "a trust store is a file"),
        (tls(truststore_type="PKCS12", truststore_location="env:canary"), "plain path"),
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


def keytool(command: str, folder: Path) -> None:
    assert shutil.which("keytool"), "keytool is a part of Java, which the tests with a JVM need"
    run(f"keytool {command}", folder)


@pytest.mark.spark  # keytool is part of Java
@pytest.mark.parametrize("kind", [{}, {"keystore_type": "JKS"}, {"keystore_type": "PKCS12"}])
def test_java_key_store_that_is_pkcs12_is_read_whatever_its_type(stores, tmp_path, kind):
    """Since Java 9, keytool writes PKCS12 by default, also to a file that is named .jks."""
    new = f"-destkeystore client.jks -deststorepass {PASSWORD}"
    shutil.copy(stores / "client.p12", tmp_path / "given.p12")
    keytool(f"-importkeystore -srckeystore given.p12 -srcstorepass {PASSWORD} {new}", tmp_path)
    path = str(tmp_path / "client.jks")
    settings = start(tls(keystore_location=path, keystore_password=PASSWORD, **kind))
    assert settings["ssl.keystore.location"] == path


@pytest.mark.spark  # as above
@pytest.mark.parametrize("kind", [{}, {"truststore_type": "jks"}, {"truststore_type": "PKCS12"}])
def test_java_trust_store_that_is_pkcs12_is_read_whatever_its_type(stores, tmp_path, kind, monkeypatch):
    certificate = stores / "cert.pem"
    for alias in ("a", "b"):
        keytool(
            f"-importcert -noprompt -alias {alias} -file {shlex.quote(str(certificate))} -keystore trust.jks "
            f"-storepass {PASSWORD}",
            tmp_path,
        )
    monkeypatch.setenv("TRUST_PASSWORD", PASSWORD)
    given = tls(truststore_location=str(tmp_path / "trust.jks"), truststore_password="env:TRUST_PASSWORD", **kind)
    settings = start(given)
    assert settings == {"security.protocol": "ssl", "ssl.ca.pem": settings["ssl.ca.pem"]}
    assert settings["ssl.ca.pem"].count(certificate.read_text().strip()) == 2


def unusable(given: dict[str, str]) -> str:
    with pytest.raises(OptionError) as refused:
        start(given)
    assert "canary" not in "".join(traceback.format_exception(refused.value))
    return str(refused.value)


def test_trust_store_that_cannot_be_used_is_rejected(stores, tmp_path):
    def trusting(path: Path, password: str) -> dict[str, str]:
        return tls(truststore_type="PKCS12", truststore_location=str(path), truststore_password=password)

    assert "kafka.ssl.truststore.password is not" in unusable(trusting(stores / "client.p12", OTHER))
    assert "no PKCS12 store" in unusable(trusting(stores / "cert.pem", PASSWORD))
    assert CONVERT_TRUST_STORE_P12 in unusable(trusting(stores / "client.p12", PASSWORD)), "it has a private key"
    assert "FileNotFoundError" in unusable(trusting(tmp_path / "canary", PASSWORD))


@pytest.mark.parametrize(("store", "command"), [("trust", CONVERT_TRUST_STORE_P12), ("key", CONVERT_KEY_STORE_P12)])
def test_store_without_the_library_names_it(stores, monkeypatch, store, command):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    text = unusable(tls(**{f"{store}store_location": str(stores / "client.p12"), f"{store}store_password": PASSWORD}))
    assert "spark-cas[pkcs12]" in text
    assert command in text


@pytest.mark.parametrize("form", ["PKCS12", "text"])
def test_temporary_file_of_a_key_is_private_and_removed(stores, tmp_path, monkeypatch, form):
    key = tls(keystore_location=str(stores / "client.p12"), keystore_password=PASSWORD)
    if form == "text":
        chain, secret = (stores / "cert.pem").read_text(), (stores / "locked.pem").read_text()
        key = tls(keystore_certificate_chain=chain, keystore_key=secret, key_password=PASSWORD, keystore_type="PEM")
    load, seen = ssl.SSLContext.load_cert_chain, []

    def observed(context, path, *arguments, **named):
        seen.append((Path(path).stat().st_mode & 0o777, "ENCRYPTED PRIVATE KEY" in Path(path).read_text()))
        load(context, path, *arguments, **named)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", observed)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    start(key)
    assert seen == [(0o600, True)]
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def old_stores(stores, tmp_path):
    """A key store and a trust store of the format JKS, made by keytool."""
    shutil.copy(stores / "client.p12", tmp_path / "given.p12")
    into = f"-srckeystore given.p12 -srcstorepass {PASSWORD} -deststorepass {PASSWORD} -deststoretype JKS"
    keytool(f"-importkeystore {into} -destkeystore client.jks", tmp_path)
    trusted = f"-importcert -noprompt -alias ca -file {shlex.quote(str(stores / 'cert.pem'))} -storetype JKS"
    keytool(f"{trusted} -keystore trust.jks -storepass {PASSWORD}", tmp_path)
    keytool(f"{trusted} -keystore accent.jks -storepass {ACCENT}", tmp_path)
    return tmp_path


@pytest.mark.spark  # as above
def test_old_java_stores_are_read(stores, old_stores):
    key = start(tls(keystore_location=str(old_stores / "client.jks"), keystore_password=PASSWORD))
    assert not key.keys() & {"ssl.keystore.location", "ssl.keystore.password"}
    assert "ENCRYPTED PRIVATE KEY" in key["ssl.key.pem"]
    certificate = (stores / "cert.pem").read_text().strip()
    assert certificate in key["ssl.certificate.pem"]
    for name, password in (("trust.jks", PASSWORD), ("accent.jks", ACCENT)):
        given = tls(truststore_location=str(old_stores / name), truststore_password=password)
        assert certificate in start(given)["ssl.ca.pem"]
    assert certificate in start(tls(truststore_location=str(old_stores / "trust.jks")))["ssl.ca.pem"]


@pytest.mark.spark  # as above
def test_damaged_old_java_store_or_wrong_password_is_rejected(old_stores):
    for name, kind in (("client.jks", "key"), ("trust.jks", "trust")):
        file = old_stores / name
        content = file.read_bytes()
        assert "is not its password" in unusable(
            tls(**{f"{kind}store_location": str(file), f"{kind}store_password": OTHER})
        )
        changed = bytes([*content[:200], content[200] ^ 1, *content[201:]])
        for damaged in (content[:12], content[:150], content[:-1], changed, content[:8] + b"\xff" * 40):
            file.write_bytes(damaged)
            given = tls(**{f"{kind}store_location": str(file), f"{kind}store_password": PASSWORD})
            assert "is damaged" in unusable(given)


@pytest.mark.spark  # as above
def test_the_commands_in_the_refusals_do_convert(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(tls_module, "find_spec", lambda _: None)
    shutil.copy(stores / "client.p12", tmp_path / "given.p12")
    store = f"-srckeystore given.p12 -srcstorepass {PASSWORD} -deststorepass {PASSWORD} -deststoretype"
    trusted = f"-importcert -noprompt -alias ca -file {shlex.quote(str(stores / 'cert.pem'))}"
    keytool(f"-importkeystore {store} JKS -destkeystore client.jks", tmp_path)
    keytool(f"{trusted} -storetype JKS -keystore truststore.jks -storepass {PASSWORD}", tmp_path)
    jks, trust = str(tmp_path / "client.jks"), str(tmp_path / "truststore.jks")
    assert CONVERT_KEY_STORE in unusable(tls(keystore_location=jks, keystore_password=PASSWORD))
    assert CONVERT_KEY_STORE in (ROOT / "docs/authentication.md").read_text()
    assert CONVERT_TRUST_STORE in unusable(tls(truststore_location=trust, truststore_password=PASSWORD))
    run(f"{CONVERT_KEY_STORE} -srcstorepass {PASSWORD} -deststorepass {PASSWORD}", tmp_path)
    run(CONVERT_TRUST_STORE.replace(" >", f" -storepass {PASSWORD} >"), tmp_path)
    p12 = str(tmp_path / "client.p12")
    start(tls(keystore_type="PKCS12", keystore_location=p12, keystore_password=PASSWORD))
    shutil.copy(p12, tmp_path / "keystore.p12")
    run(f"{CONVERT_KEY_STORE_P12} -passin pass:{PASSWORD} -passout pass:{PASSWORD}", tmp_path)
    start(tls(keystore_type="PEM", keystore_location=str(tmp_path / "client.pem"), key_password=PASSWORD))
    pem = tmp_path / "truststore.pem"
    start(tls(truststore_type="PEM", truststore_location=str(pem)))
    pem.unlink()
    keytool(f"{trusted} -storetype PKCS12 -keystore truststore.p12 -storepass {PASSWORD}", tmp_path)
    run(f"{CONVERT_TRUST_STORE_P12} -passin pass:{PASSWORD}", tmp_path)
    assert "BEGIN CERTIFICATE" in pem.read_text()
    start(tls(truststore_type="PEM", truststore_location=str(pem)))
