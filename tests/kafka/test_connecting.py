"""Brokers that clients cannot connect to: the error of every first contact, and its delay, on a real broker."""

import gc
import os
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer

import pytest
from confluent_kafka import KafkaException

from spark_cas.core.errors import ConditionalLogError, LogNotFoundError, OptionError, StorageError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.address import kafka_spec
from spark_cas.log.open import open_log
from spark_cas.options.parse import parse_read_stream
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import RECORDS
from tests.kafka.clients import create_topic
from tests.kafka.readers import wait_for
from tests.kafka.secured import PASSWORD, USER, WRONG, sasl
from tests.long import full

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SECONDS = 15
TOPIC = "flights"
SOON = {"delivery.timeout.ms": "5000"}
SHORTLY = {"request.timeout.ms": "1500", "delivery.timeout.ms": "3000"}
"""A silent broker may only be stalled, so the client waits for it. These timeouts limit that wait."""

CANARY = "canary"
"""A word that no error, note or log line may contain. Every value below that is not an address contains it."""

CONTACTS: dict[str, Callable[[str, dict[str, str]], object]] = {
    "layout": lambda servers, given: KafkaLog(kafka_spec(servers, TOPIC, given)).layout(),
    "preflight": lambda servers, given: KafkaLog(kafka_spec(servers, TOPIC, given)).preflight(),
    "bounds": lambda servers, given: KafkaLog(kafka_spec(servers, TOPIC, given)).bounds(0),
    "read": lambda servers, given: list(KafkaLog(kafka_spec(servers, TOPIC, given)).read(0, OffsetRange(0, 1))),
    "plan": lambda servers, given: KafkaLog(kafka_spec(servers, TOPIC, given)).plan("job"),
    "create": lambda servers, given: KafkaLog(kafka_spec(servers, TOPIC, given)).create(1),
    "open_log": lambda servers, given: open_log(f"kafka://{servers}/{TOPIC}", given).layout(),
}

CREDENTIALS = "refused the credentials"
TLS = "failed because of a certificate"
NAME = "is unknown here"
REFUSED = "connection refused by"
SILENCE = "did not answer in time"
EXPECTS_MORE = "closed the connection at the first request, as with TLS or SASL"
NO_TLS = "ended the TLS handshake, as without TLS"

CASES = {
    "a closed port": REFUSED,
    "a port that accepts and does not respond": SILENCE,
    "a port that accepts and does not respond, TLS": SILENCE,
    "a name that does not resolve": NAME,
    "a wrong password": CREDENTIALS,
    "an unknown user": CREDENTIALS,
    "a mechanism that the broker does not have": "does not have this SASL mechanism",
    "no token available": CREDENTIALS,
    "PLAINTEXT to a SASL listener": "closed the connection",
    "PLAINTEXT to a TLS listener": EXPECTS_MORE,
    "SASL to a PLAINTEXT listener": "does not use SASL",
    "SASL to a TLS listener": EXPECTS_MORE,
    "TLS to a PLAINTEXT listener": NO_TLS,
    "TLS to a SASL listener": NO_TLS,
    "a certificate that is not trusted": TLS,
    "a certificate for another host": TLS,
}


@dataclass(frozen=True)
class Told:
    """The result of a first contact with these servers."""

    servers: str
    error: BaseException | None
    seconds: float


@contextmanager
def silent_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def closed_port() -> str:
    with silent_port() as address:
        return address


def given_for(case: str, secured, silent: str) -> tuple[str, dict[str, str]]:
    port = secured.tls.rpartition(":")[2]
    tls = {"security.protocol": "SSL"}
    trusting = {
        **tls,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.certificate),
    }
    token = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"http://{closed_port()}/{CANARY}",
        "sasl.oauthbearer.client.credentials.client.id": USER,
        "sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
    }
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    other = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{scram} username="{USER}" password="{PASSWORD}";',
    }
    return {
        "a closed port": (closed_port(), {}),
        "a port that accepts and does not respond": (silent, SOON),
        "a port that accepts and does not respond, TLS": (silent, {**tls, **SOON}),
        "a name that does not resolve": ("no-such-host.invalid:9092", {}),
        "a wrong password": (secured.sasl, sasl(USER, WRONG)),
        "an unknown user": (secured.sasl, sasl(WRONG, PASSWORD)),
        "a mechanism that the broker does not have": (secured.sasl, other),
        "no token available": (secured.sasl, token),
        "PLAINTEXT to a SASL listener": (secured.sasl, {}),
        "PLAINTEXT to a TLS listener": (secured.tls, {}),
        "SASL to a PLAINTEXT listener": (secured.open, sasl()),
        "SASL to a TLS listener": (secured.tls, sasl()),
        "TLS to a PLAINTEXT listener": (secured.open, tls),
        "TLS to a SASL listener": (secured.sasl, tls),
        "a certificate that is not trusted": (secured.tls, tls),
        "a certificate for another host": (f"localhost:{port}", trusting),
    }[case]


def contact(by: str, servers: str, given: dict[str, str]) -> Told:
    began = time.monotonic()
    try:
        CONTACTS[by](servers, given)
    except Exception as error:  # noqa: BLE001 - the tests check any error
        seconds = time.monotonic() - began
        # Without its frames, because they hold the client, which would reconnect continually while other tests run.
        return Told(servers, error.with_traceback(None), seconds)
    return Told(servers, None, time.monotonic() - began)


@contextmanager
def stderr_to(path) -> Iterator[None]:
    """Redirect file descriptor 2 of this process and its clients to a file."""
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.fixture(scope="module")
def stderr_file(tmp_path_factory):
    return tmp_path_factory.mktemp("said") / "stderr"


ASKED = [(case, "layout") for case in CASES] + [
    (case, by)
    for case in ("a wrong password", "a port that accepts and does not respond")
    for by in CONTACTS
    if by != "layout"
]


@pytest.fixture(scope="module")
def told(secured, stderr_file):
    """The results of all first contacts. They run concurrently, because each mostly waits."""
    with silent_port() as silent, stderr_to(stderr_file):
        given = {case: given_for(case, secured, silent) for case in CASES}
        with ThreadPoolExecutor(len(ASKED)) as pool:
            asked = {(case, by): pool.submit(contact, by, *given[case]) for case, by in ASKED}
        return {key: future.result() for key, future in asked.items()}


@pytest.mark.parametrize(("case", "by"), ASKED)
def test_first_contact_reports_the_cause(told, case, by):
    found = told[case, by]
    assert isinstance(found.error, StorageError), repr(found.error)
    assert re.search(CASES[case], str(found.error))
    assert re.search(r"\. (Check|Set) ", str(found.error))
    assert found.servers in str(found.error)
    assert f"topic {TOPIC}:" in str(found.error), "the user's topic for each requested topic"
    assert found.seconds < SECONDS


@pytest.mark.parametrize("asked", ["initialOffset", *full("prepareForTriggerAvailableNow")])
def test_stream_reports_a_wrong_address_soon_at_each_first_call(asked):
    options = {"kafka.bootstrap.servers": closed_port(), "subscribe": TOPIC, "kafka.delivery.timeout.ms": "30000"}
    options["kafka.request.timeout.ms"] = "3000"
    reader = RecordsStreamReader(parse_read_stream(options), RECORDS)
    began = time.monotonic()
    with pytest.raises(StorageError, match=REFUSED):
        getattr(reader, asked)()
    assert time.monotonic() - began < SECONDS
    reader.stop()


def test_errors_show_no_configured_value(told, stderr_file):
    shown = [f"{found.error!r} {found.error}" for found in told.values()]
    assert not [each for each in shown if CANARY in each]
    assert not any(found.error.__cause__ or not found.error.__suppress_context__ for found in told.values())
    assert CANARY not in stderr_file.read_text(errors="replace")


def test_the_right_settings_do_connect(secured):
    """Otherwise, the cases above would prove nothing."""
    topic = create_topic(secured.open)
    trusting = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.certificate),
    }
    # A TLS client without a certificate is User:ANONYMOUS, which may do anything here.
    assert KafkaLog(kafka_spec(secured.tls, topic, trusting)).layout().partitions == 1
    with pytest.raises(StorageError, match="ACL: Describe on topic"):
        KafkaLog(kafka_spec(secured.sasl, topic, sasl())).layout()


def test_credentials_that_a_silent_broker_refuses_later_are_refused_at_once(secured):
    """The client waits while the broker is silent. Its response after that decides."""
    patience = {"request.timeout.ms": "1500", "delivery.timeout.ms": "60000"}
    with KafkaLog(kafka_spec(secured.sasl, TOPIC, {**sasl(USER, WRONG), **patience})) as log:
        secured.broker.freeze()
        back = Timer(4, secured.broker.thaw)
        back.start()
        try:
            with pytest.raises(StorageError, match=CREDENTIALS):
                log.layout()
        finally:
            back.join()
            secured.broker.node(1).wait_until_alive()


def test_rejection_after_a_silence_is_reported(secured):
    """One of several brokers may be silent while others reject the credentials. Silence alone would be retried."""
    with KafkaLog(kafka_spec(secured.sasl, TOPIC, {**sasl(USER, WRONG), **SHORTLY})) as log:
        admin = log._admin
        secured.broker.freeze()
        try:
            with pytest.raises(KafkaException, match="_TIMED_OUT"):
                admin.answer(admin.client.describe_cluster(request_timeout=admin.request_seconds))
            wait_for(lambda: admin.client.poll(0.1) or admin._troubles.silent, "the client has noticed the silence")
        finally:
            secured.broker.thaw()
            secured.broker.node(1).wait_until_alive()
        with pytest.raises(KafkaException, match="_AUTHENTICATION"):
            admin.answer(admin.client.describe_cluster(request_timeout=admin.request_seconds))


def test_stopped_broker_differs_from_one_that_never_responded(secured):
    """After a response, earlier errors do not explain a failure."""
    log = KafkaLog(kafka_spec(f"{closed_port()},{secured.open}", TOPIC, {}))
    with pytest.raises(LogNotFoundError):
        log.layout()


@pytest.mark.parametrize("ask", [KafkaLog.layout, *full(KafkaLog.preflight, lambda log: log.bounds(0))])
def test_client_without_a_response_ends_with_its_log(ask):
    """Otherwise, each retry of a long outage would leave a client with its threads and connections."""
    with silent_port() as address, KafkaLog(kafka_spec(address, TOPIC, SHORTLY)) as log:
        with pytest.raises(StorageError, match=SILENCE):
            ask(log)
        client = weakref.ref(log._admin)
    del log
    gc.collect()
    assert client() is None


TRUST = {"ssl.truststore.type": "PEM"}
KEY = {"ssl.keystore.type": "PEM"}
P12 = {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": PASSWORD}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({**TRUST, "ssl.truststore.location": "/canary/none.pem"}, "kafka.ssl.truststore.location"),
        ({**TRUST, "ssl.truststore.location": "{bad}"}, "kafka.ssl.truststore.location"),
        ({**TRUST, "ssl.truststore.certificates": "canary"}, "kafka.ssl.truststore.certificates"),
        ({**KEY, "ssl.keystore.location": "/canary/none.pem"}, "kafka.ssl.keystore.location"),
        ({**KEY, "ssl.keystore.location": "{bad}"}, "kafka.ssl.keystore.location"),
        (
            {**KEY, "ssl.keystore.certificate.chain": "canary", "ssl.keystore.key": "canary"},
            "kafka.ssl.keystore.certificate.chain",
        ),
        ({**P12, "ssl.keystore.location": "/canary/none.p12"}, "kafka.ssl.keystore.location"),
        ({**P12, "ssl.keystore.location": "{bad}"}, "kafka.ssl.keystore.location"),
    ],
)
def test_a_client_that_cannot_start_names_the_setting(tmp_path, capfd, given, named):
    bad = tmp_path / "canary.pem"
    bad.write_text("canary")
    filled = {name: value.format(bad=bad) for name, value in given.items()}
    with pytest.raises(OptionError) as refused:
        open_log(f"kafka://127.0.0.1:9/{TOPIC}", {"security.protocol": "SSL", **filled})
    assert f"{named} is not usable" in str(refused.value)
    assert_hidden(refused.value, capfd)


def test_a_producer_that_cannot_start_names_the_setting(secured, capfd):
    topic = create_topic(secured.open)
    log = KafkaLog(kafka_spec(secured.open, topic, {"request.timeout.ms": "9000"}, transaction_timeout_ms=5_000))
    with pytest.raises(OptionError, match="the Kafka client rejected its configuration"):
        log.preflight()


def assert_hidden(error: ConditionalLogError, capfd) -> None:
    assert CANARY not in f"{error!r} {error} {capfd.readouterr().err}"
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
