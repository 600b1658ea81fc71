"""References to secrets, resolved when clients are created. Runs without a broker."""

import re
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.secrets import RESOLVED, resolve
from spark_cas.log.kafka.settings.translate import ALLOWED, librdkafka_settings
from spark_cas.options.option_values import STORE_OPTIONS, without_secret
from tests.support import token_provider

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = sorted(RESOLVED)
FUNCTIONS = token_provider.__name__


def refusal(name: str, value: str) -> str:
    with pytest.raises(OptionError) as refused:
        resolve([(name, value)])
    assert "canary" not in "".join(traceback.format_exception(refused.value))
    assert RESOLVED[name] in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", SETTINGS)
def test_secret_is_read_from_a_variable(name, monkeypatch):
    monkeypatch.setenv("A_SECRET", "env:not again\n")
    assert resolve([(name, "env:A_SECRET")]) == {name: "env:not again\n"}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    ("content", "secret"),
    [
        ("s", "s"),
        ("s\n", "s"),
        ("s\r\n", "s"),
        ("s\n\n", "s\n"),
        (" sä ", " sä "),
        ("file:s", "file:s"),
        ("-----BEGIN X-----\nx\n-----END X-----\n", "-----BEGIN X-----\nx\n-----END X-----"),
    ],
)
def test_secret_is_read_from_a_file(name, content, secret, tmp_path):
    path = tmp_path / "a secret: of 1"
    path.write_bytes(content.encode())
    assert resolve([(name, f"file:{path}")]) == {name: secret}


@pytest.mark.parametrize("name", SETTINGS)
def test_secret_is_the_result_of_a_function(name):
    assert resolve([(name, f"function:{FUNCTIONS}:password")]) == {name: token_provider.password()}


@given(st.sampled_from(SETTINGS), st.text())
def test_text_without_a_reference_is_unchanged(name, value):
    given_value = value if not value.startswith(("env:", "file:", "function:")) else f" {value}"
    assert resolve([(name, given_value)]) == {name: given_value}


@pytest.mark.parametrize("name", ["client.id", "ssl.ca.location", "ssl.keystore.location", "batch.size"])
def test_only_settings_that_hold_secrets_are_resolved(name, monkeypatch):
    monkeypatch.setenv("A_SECRET", "s")
    assert resolve([(name, "env:A_SECRET")]) == {name: "env:A_SECRET"}


def test_references_inside_a_login_are_resolved(monkeypatch, tmp_path):
    monkeypatch.setenv("A_SECRET", 'p"\\;')
    (tmp_path / "user").write_text("u\n")
    jaas = f'{SCRAM} required username="file:{tmp_path}/user" password="env:A_SECRET";'
    pairs = librdkafka_settings(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    )
    assert dict(pairs)["sasl.password"] == "env:A_SECRET"
    resolved = resolve(pairs)
    assert (resolved["sasl.username"], resolved["sasl.password"]) == ("u", 'p"\\;')


@pytest.mark.parametrize("name", SETTINGS)
def test_a_variable_that_is_missing_is_named(name, monkeypatch):
    monkeypatch.delenv("NO_SECRET", raising=False)
    text = refusal(name, "env:NO_SECRET")
    assert "environment variable NO_SECRET" in text
    assert "spark.executorEnv.NO_SECRET" in text


@pytest.mark.parametrize("reference", ["", " ", "canary-1", "1canary", "canary=", "canär", "canary\n", "canary\0"])
def test_invalid_variable_name_is_not_shown(reference):
    assert "no name of an environment variable" in refusal("sasl.password", f"env:{reference}")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_file_that_is_missing_is_not_named(name, tmp_path):
    assert "a file that cannot be read here (FileNotFoundError)" in refusal(name, f"file:{tmp_path}/canary")


def test_a_file_that_cannot_be_read_is_not_shown(tmp_path):
    (tmp_path / "canary").write_bytes(b"canary\xff")
    assert "UnicodeDecodeError" in refusal("sasl.password", f"file:{tmp_path}/canary")
    assert "IsADirectoryError" in refusal("sasl.password", f"file:{tmp_path}")
    assert "ValueError" in refusal("sasl.password", "file:canary\0")
    assert "cannot be read" in refusal("sasl.password", "file:")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("raises", "raised RuntimeError"),
        ("exits", "raised SystemExit"),
        ("missing", "cannot be imported here (AttributeError)"),
        ("HEADER", "must name a function"),
        ("token", "must return a str"),
        ("hangs", "did not return within"),
    ],
)
def test_function_that_returns_no_secret_is_named(function, reason, set_timing):
    set_timing(longest_request=0.1)
    text = refusal("sasl.password", f"function:{FUNCTIONS}:{function}")
    assert f"(function:{FUNCTIONS}:{function})" in text
    assert reason in text


def test_function_whose_module_is_missing_is_named():
    text = refusal("ssl.key.password", "function:no.such.module:secret")
    assert "(function:no.such.module:secret) names a function that cannot be imported" in text


@pytest.mark.parametrize(
    "reference", ["", "canary", "canary:", "canary:f()", "canary.f", "a b:canary", "canary:f?x=1"]
)
def test_invalid_function_name_is_not_shown(reference):
    assert "no package.module:function follows" in refusal("sasl.password", f"function:{reference}")


@pytest.mark.parametrize("content", ["", "\n", "canary\0canary"])
def test_a_secret_is_neither_empty_nor_cut_short(content, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text(content)
    assert "a file that is empty or holds NUL" in refusal("ssl.key.password", f"file:{tmp_path}/secret")
    monkeypatch.setenv("A_SECRET", "")
    assert "an environment variable that is empty" in refusal("ssl.key.password", "env:A_SECRET")
    monkeypatch.setattr(token_provider, "password", content.strip)
    text = refusal("ssl.key.password", f"function:{FUNCTIONS}:password")
    assert f"a result of the function {FUNCTIONS}:password that is empty" in text


SECRET = {
    "kafka.sasl.oauthbearer.client.credentials.client.secret",
    "kafka.ssl.key.password",
    "kafka.ssl.keystore.certificate.chain",
    "kafka.ssl.keystore.key",
    "kafka.ssl.keystore.password",
    "kafka.ssl.truststore.password",
    "store.access_key_id",
    "store.account_key",
    "store.bearer_token",
    "store.client_secret",
    "store.encryption_key",
    "store.fabric_session_token",
    "store.sas_key",
    "store.sas_token",
    "store.secret_access_key",
    "store.service_account_key",
    "store.session_token",
    "store.sse_customer_key_base64",
    "store.token",
}


def test_values_that_are_not_shown():
    names = {f"store.{name}" for name in STORE_OPTIONS} | {f"kafka.{name}" for name in ALLOWED - {"sasl.jaas.config"}}
    hidden = {name for name in names if without_secret(name.upper(), "canary") == "..."}
    assert hidden <= names
    assert {re.sub(r"\.(aws|azure_storage|azure|google)_", ".", name) for name in hidden} == SECRET
    assert {without_secret(name, "canary") for name in (names - hidden) | {"idPrefix", "tokenProvider"}} == {"canary"}


@pytest.mark.parametrize(
    ("name", "value", "is_shown"),
    [
        ("kafka.ssl.key.password", "file:/etc/secrets/key", True),
        ("kafka.ssl.key.password", "env:KEY", True),
        ("kafka.ssl.key.password", "function:secrets_of.team:key", True),
        ("store.sas_key", "env:KEY", False),
        ("kafka.sasl.jaas.config", f'{SCRAM} required username="u" password="env:PASSWORD";', True),
        ("kafka.sasl.jaas.config", f'{SCRAM} required username="u" password="canary";', False),
        ("KAFKA.sasl.jaas.config", f'{SCRAM} required username="env:U" password="canary";', False),
    ],
)
def test_only_a_reference_to_a_secret_is_shown(name, value, is_shown):
    assert without_secret(name, value) == (value if is_shown else "...")
