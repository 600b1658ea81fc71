"""The settings of kafka-python, from those of librdkafka."""

import ssl
import threading
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from spark_cas.core.errors import ConditionalLogError, OptionError, StorageError
from spark_cas.log.kafka.client.kafka_python import kafka_python_settings

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
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT, "librdkafka does not check this"


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
def test_unusable_setting_is_named_without_its_value(settings):
    with pytest.raises(OptionError) as raised:
        kafka_python_settings(BASE | settings)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


class Endpoint(BaseHTTPRequestHandler):
    """A token endpoint with one reply. Without a body, it sends one byte after another until the test ends."""

    server: "EndpointServer"

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.requests.append((self.headers["Authorization"], form))
        status, body = self.server.reply
        self.send_response(status)
        self.send_header("Location", "/token")
        self.end_headers()
        if body is not None:
            self.wfile.write(body)
        while body is None and not self.server.ended.wait(0.05):
            self.wfile.write(b" ")

    do_GET = do_POST  # noqa: N815 - the name is that of the class above

    def log_message(self, *_):
        """Log nothing."""


class EndpointServer(ThreadingHTTPServer):
    def __init__(self, status, body):
        super().__init__(("127.0.0.1", 0), Endpoint)
        self.reply, self.requests, self.ended = (status, body), [], threading.Event()


@contextmanager
def endpoint(status, body):
    with EndpointServer(status, body) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()


def login_at(server, **others):
    url = f"http://127.0.0.1:{server.server_port}/token"
    settings = {"token.endpoint.url": url, "client.id": "me", "client.secret": SECRET, **others}
    return {
        **BASE,
        "socket.timeout.ms": 1000,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        **{f"sasl.oauthbearer.{name}": value for name, value in settings.items()},
    }


def test_token_of_an_endpoint():
    with endpoint(200, b'{"access_token": "a.b.c"}') as server:
        settings = kafka_python_settings(login_at(server, scope="a b", extensions="logicalCluster=lkc,pool=p=1"))
    provider = settings["sasl_oauth_token_provider"]
    assert (provider.token(), provider.extensions()) == ("a.b.c", {"logicalCluster": "lkc", "pool": "p=1"})
    login = b64encode(f"me:{SECRET}".encode()).decode()
    assert server.requests == [(f"Basic {login}", {"grant_type": ["client_credentials"], "scope": ["a b"]})]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(302, b'{"access_token": "canary"}', id="redirect"),
        pytest.param(401, b'{"access_token": "canary"}', id="rejected"),
        pytest.param(200, b"canary", id="not JSON"),
        pytest.param(200, b"[" * 100_000, id="nested JSON"),
        pytest.param(200, b'["canary"]', id="list"),
        pytest.param(200, b'{"error": "canary"}', id="no token"),
        pytest.param(200, b'{"access_token": 1}', id="number"),
        pytest.param(200, b'{"access_token": "canary\\u0001"}', id="control character"),
        pytest.param(200, b'{"access_token": "%s"}' % (b"canary" * 200_000), id="too long"),
        pytest.param(200, None, id="endless"),
        pytest.param(429, b"canary", id="too many requests"),
        pytest.param(503, b"canary", id="unavailable"),
    ],
)
def test_endpoint_without_a_token_is_an_error_without_a_secret(status, body):
    with endpoint(status, body) as server:
        with pytest.raises(ConditionalLogError, match=r"token\.endpoint\.url returned no token") as raised:
            kafka_python_settings(login_at(server))
        assert len(server.requests) == 1
    assert type(raised.value) is (StorageError if body is None or status >= 429 else OptionError)
    assert "canary" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_endpoint_that_is_down_is_an_error():
    with endpoint(200, b"") as server:
        settings = login_at(server)
    with pytest.raises(StorageError, match="ConnectionRefusedError"):
        kafka_python_settings(settings)
