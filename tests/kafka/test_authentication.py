"""Records through a broker that authenticates its clients over TLS, with each mechanism."""

import json
import time
import traceback

import pyarrow as pa
import pytest

from spark_cas import append_once, open_log, raise_for_outcome
from spark_cas.core.errors import OptionError, StorageError
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend
from tests.kafka.authenticating import SECRETS, WAYS, Authenticating
from tests.kafka.clients import create_topic
from tests.long import full
from tests.support import token_provider
from tests.support.planted_problems import report_on
from tests.support.programs import run_cli
from tests.support.token_provider import LIFETIME_SECONDS
from tests.support.writing import values_in

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180), pytest.mark.usefixtures("provided_tokens", "msk_user")]

PROVIDER = "token provider"
SOON = {"request.timeout.ms": "3000", "delivery.timeout.ms": "5000"}
"""Timeouts for a client that no broker accepts."""


def provided_by(secured: Authenticating, function: str) -> dict[str, str]:
    return {**secured.settings[PROVIDER], "tokenProvider": f"{token_provider.__name__}:{function}"}


def assert_hidden(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in text]


def append(log: Backend, job: str, expected: int) -> None:
    records = [{"key": b"k", "value": job.encode(), "headers": None, "timestamp": None}]
    outcome = append_once(log, 0, pa.Table.from_pylist(records, RECORDS), job=job, expected_offset=expected)
    raise_for_outcome(outcome, 0)


def append_for_a_minute(log: Backend) -> None:
    for number in range(120):
        append(log, f"job-{number}", log.bounds(0).end_offset)
        time.sleep(0.5)


@pytest.mark.parametrize("way", WAYS)
def test_records_are_appended_and_read(authenticating, way, caplog, capfd):
    address = f"kafka://{authenticating.servers[way]}/{create_topic(authenticating.open)}"
    settings = authenticating.settings[way]
    with open_log(address, settings) as log:
        append(log, "one", 0)
        end = log.bounds(0).end_offset
        append(log, "two", end)
        assert values_in(log, 0) == ["one", "two"]
    given = [f"--log-option={name}={value}" for name, value in authenticating.options(way).items()]
    read = run_cli("read", address, "--json", *given)
    assert read.code == 0, read.err
    assert [json.loads(line)["value"] for line in read.out.splitlines()] == ["one", "two"]
    described = run_cli("describe", address, *given)
    assert described.code == 0, described.err
    assert_hidden(capfd.readouterr().err + caplog.text + described.out + described.err + read.err)


@pytest.mark.parametrize("way", ["PLAIN", "token endpoint", "PEM", "Java stores"])
def test_secret_from_a_function(authenticating, way):
    address = f"kafka://{authenticating.servers[way]}/{create_topic(authenticating.open)}"
    options = authenticating.options(way, f"function:{token_provider.__name__}:password")
    settings = {name.removeprefix("kafka."): value for name, value in options.items()}
    with open_log(address, settings) as log:
        append(log, "one", 0)
        assert values_in(log, 0) == ["one"]
    wrong = {name: value.replace(":password", ":raises") for name, value in settings.items()}
    with pytest.raises(OptionError, match=r"function:.*:raises\): the function raised RuntimeError") as error:
        open_log(address, wrong).layout()
    assert_hidden("".join(traceback.format_exception(error.value)))


OFTEN = ("SCRAM-SHA-512", "token endpoint", PROVIDER, "Java stores")


@pytest.mark.parametrize("way", [*OFTEN, *full(*(way for way in WAYS if way not in OFTEN))])
def test_doctor_lists_transactions_after_a_login(authenticating, way):
    address = f"kafka://{authenticating.servers[way]}/{create_topic(authenticating.open)}"
    options = [f"--log-option={name}={value}" for name, value in authenticating.options(way).items()]
    report = report_on(address, *options)
    assert "REPLICATION_FACTOR" in report.problems
    assert "TRANSACTIONS_UNREADABLE" not in report.problems
    assert_hidden(str(report))


@pytest.mark.parametrize("way", ["PEM", "PLAIN"])
def test_client_without_a_login_is_rejected(authenticating, way):
    """Otherwise, the test above would not show that the broker authenticates its clients."""
    given = {name: value for name, value in authenticating.settings[way].items() if "truststore" in name}
    with pytest.raises(StorageError):
        open_log(
            f"kafka://{authenticating.servers[way]}/flights", {**given, **SOON, "security.protocol": "SSL"}
        ).layout()


def test_wrong_secret_of_the_token_endpoint_is_rejected(authenticating):
    """Otherwise, the test above would not show that a reference to the secret is resolved."""
    way = "token endpoint"
    secret = "sasl.oauthbearer.client.credentials.client.secret"
    settings = {**authenticating.settings[way], secret: "canary-wrong"}
    assert settings.keys() == authenticating.settings[way].keys()
    settings |= SOON
    with pytest.raises(StorageError) as refused:
        open_log(f"kafka://{authenticating.servers[way]}/flights", settings).layout()
    assert_hidden("".join(traceback.format_exception(refused.value)))


def test_certificate_of_the_token_endpoint_is_verified(authenticating):
    settings = authenticating.settings["token endpoint"] | SOON
    del settings["sasl.jaas.config"]
    with pytest.raises(StorageError):
        open_log(f"kafka://{authenticating.servers['token endpoint']}/flights", settings).layout()


def test_token_is_refreshed_before_it_expires(authenticating, provided_tokens, caplog):
    """The clients stay open, and the broker closes each connection whose token has expired."""
    address = f"kafka://{authenticating.servers[PROVIDER]}/{create_topic(authenticating.open)}"
    jobs: list[str] = []
    begin = time.monotonic()
    with open_log(address, authenticating.settings[PROVIDER]) as log:
        while time.monotonic() - begin < 2 * LIFETIME_SECONDS:
            append(log, f"job-{len(jobs)}", log.bounds(0).end_offset)
            jobs.append(f"job-{len(jobs)}")
            time.sleep(0.5)
        assert values_in(log, 0) == jobs
        lifetimes = (time.monotonic() - begin) / LIFETIME_SECONDS
        assert 2 <= len(provided_tokens) <= 2 * lifetimes + 1, "clients share a token for half of its lifetime"
    assert_hidden(caplog.text)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "raised RuntimeError"),
        ("expired", "has expired"),
        ("in_milliseconds", "not in seconds"),
        ("incomplete", "something else"),
        ("no_such_function", "cannot be imported"),
        ("SUBJECT", "must name a function"),
    ],
)
def test_failing_provider_is_a_permanent_error_at_once(authenticating, function, said):
    began = time.monotonic()
    with pytest.raises(OptionError, match=said) as refused:
        open_log(f"kafka://{authenticating.servers[PROVIDER]}/flights", provided_by(authenticating, function))
    assert time.monotonic() - began < 2
    assert_hidden("".join(traceback.format_exception(refused.value)))


def test_provider_that_fails_later_is_named(authenticating, monkeypatch):
    monkeypatch.setattr(token_provider, "LIFETIME_SECONDS", 2.5)  # its first token lives four times as long
    address = f"kafka://{authenticating.servers[PROVIDER]}/{create_topic(authenticating.open)}"
    limits = {"request.timeout.ms": "3000", "delivery.timeout.ms": "8000"}
    with open_log(address, provided_by(authenticating, "fails_later") | limits) as log:
        with pytest.raises(OptionError, match="raised RuntimeError") as refused:
            append_for_a_minute(log)
        assert token_provider.calls > 1
    assert values_in(open_log(f"kafka://{authenticating.open}/{address.rpartition('/')[2]}"), 0)
    assert_hidden("".join(traceback.format_exception(refused.value)))


def test_token_that_the_broker_rejects_is_reported(authenticating):
    with pytest.raises(StorageError, match="credentials") as refused:
        open_log(
            f"kafka://{authenticating.servers[PROVIDER]}/flights",
            provided_by(authenticating, "rejected") | SOON | {"delivery.timeout.ms": "10000"},
        ).layout()
    assert_hidden("".join(traceback.format_exception(refused.value)))
