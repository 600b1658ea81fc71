"""A broker that authenticates its clients over TLS, by each mechanism, and the settings of a user for each."""

import base64
import json
import os
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.kafka.clients import SECONDS, admin_of
from tests.pages import ROOT, blocks
from tests.support import token_provider
from tools.kafka_broker import KafkaBroker
from tools.kafka_broker.jars import java, kafka_jars

USER, PASSWORD = token_provider.SUBJECT, token_provider.password()
SECRETS = ("canary", token_provider.HEADER)
"""One of these texts is in each password, key password and token."""

MSK = "AWS_MSK_IAM"
PAGE = "docs/authentication.md"
ON_PAGE = ("SCRAM-SHA-512", "PLAIN", "PEM", "Java stores", "token endpoint", MSK, "token provider")
"""The ways to authenticate whose settings the tests take from the page, in its order."""

AWS_USER = {
    "AWS_ACCESS_KEY_ID": "AKIDLOADER",
    "AWS_SECRET_ACCESS_KEY": "canary-secret",
    "AWS_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The environment of the one AWS user whose tokens the broker accepts."""

_VALIDATOR = Path(__file__).with_name("MskTokenValidator.java")
_MODULES = "org.apache.kafka.common.security."
_PLAIN = f"{_MODULES}plain.PlainLoginModule required"
_SCRAM = f"{_MODULES}scram.ScramLoginModule required"
_OAUTH = f"{_MODULES}oauthbearer.OAuthBearerLoginModule required"
_SCRAM_KINDS = {
    "scram-sha-256": ScramMechanism.SCRAM_SHA_256,
    "scram-sha-512": ScramMechanism.SCRAM_SHA_512,
}
REAUTHENTICATION_MS = 60_000
"""With this setting, a broker closes a connection whose token has expired."""

_STORES = (
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
    *(
        f"openssl req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name} && "
        f"printf 'subjectAltName=IP:127.0.0.1' > {name}.ext && openssl x509 -req -in {name}.csr -CA ca.pem "
        f"-CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile {name}.ext && "
        f"openssl pkcs8 -topk8 -nocrypt -in {name}.key -out {name}-store.pem && cat {name}.pem >> {name}-store.pem"
        for name in ("broker", "client")
    ),
    f"openssl pkcs8 -topk8 -in client.key -out locked.key -passout pass:{PASSWORD}",
    "cat locked.key client.pem > locked.pem",
    f"openssl pkcs12 -export -inkey client.key -in client.pem -name client -out client.jks -passout pass:{PASSWORD}",
    f"keytool -importcert -noprompt -alias ca -file ca.pem -keystore trust.jks -storepass {PASSWORD}",
    *(
        f"keytool -importkeystore -srckeystore {name}.jks -srcstorepass {PASSWORD} -destkeystore {name}-old.jks "
        f"-deststoretype JKS -deststorepass {PASSWORD}"
        for name in ("client", "trust")
    ),
)


@dataclass(frozen=True)
class Authenticating:
    """A broker that accepts only clients with a login or a certificate, except at ``open``."""

    open: str
    servers: dict[str, str]
    """The address for each way to authenticate."""
    settings: dict[str, dict[str, str]]
    """The settings under their Java names, and tokenProvider, for each way to authenticate."""

    folder: Path
    """It has a file ``password``."""

    def options(self, way: str, reference: str | None = None) -> dict[str, str]:
        """Return the settings as options, with references to the passwords, by default to a file."""
        reference = reference or f"file:{self.folder / 'password'}"
        return {
            name if name == "tokenProvider" else f"kafka.{name}": value.replace(PASSWORD, reference)
            for name, value in self.settings[way].items()
        }


CERTIFICATES = ("PEM", "PEM text", "Java stores", "JKS")
WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "token endpoint", "token provider", MSK, *CERTIFICATES)
"""`MSK` needs the environment `AWS_USER`."""

_LISTENER_OF = {**dict.fromkeys(CERTIFICATES, "CERTS"), MSK: "MSK"}


@contextmanager
def authenticating_broker(conf: Path, folder: Path) -> Iterator[Authenticating]:
    """Start the broker, and a token endpoint. ``folder`` is for certificates."""
    for command in _STORES:
        subprocess.run(command, cwd=folder, shell=True, check=True, capture_output=True)  # noqa: S602
    (folder / "password").write_text(PASSWORD)
    classes = folder / "classes"
    compiler = Path(java()).resolve().with_name("javac")
    if not compiler.exists():
        msg = f"the validator of tokens must be compiled, and this Java has no compiler: {compiler} is missing"
        raise RuntimeError(msg)
    subprocess.run(
        [compiler, "-Xlint:all", "-Werror", "-d", classes, "-cp", f"{kafka_jars()}/*", _VALIDATOR], check=True
    )
    with (
        token_endpoint(folder) as url,
        KafkaBroker(conf, settings=_broker(folder), secured=_LISTENERS, classes=classes) as broker,
    ):
        admin = admin_of(broker.bootstrap)
        for mechanism in _SCRAM_KINDS.values():
            info = ScramCredentialInfo(mechanism, 4096)
            user = UserScramCredentialUpsertion(USER, info, PASSWORD.encode(), os.urandom(16))
            for made in admin.alter_user_scram_credentials([user]).values():
                made.result(SECONDS)
        yield Authenticating(
            broker.bootstrap,
            {way: broker.address_at(_LISTENER_OF.get(way, "LOGIN")) for way in WAYS},
            _clients(folder, url),
            folder,
        )


_LISTENERS = {"LOGIN": "SASL_SSL", "CERTS": "SSL", "MSK": "SASL_SSL"}


def _broker(folder: Path) -> dict[str, str]:
    login = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "plain.sasl.jaas.config": f'{_PLAIN} user_{USER}="{PASSWORD}";',
        **{f"{kind}.sasl.jaas.config": f"{_SCRAM};" for kind in _SCRAM_KINDS},
        "oauthbearer.sasl.jaas.config": f'{_OAUTH} unsecuredLoginStringClaim_sub="broker";',
        "oauthbearer.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
    }
    msk_login = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.server.callback.handler.class": _VALIDATOR.stem,
        "oauthbearer.sasl.jaas.config": (
            f'{_OAUTH} unsecuredLoginStringClaim_sub="broker" accessKey="{AWS_USER["AWS_ACCESS_KEY_ID"]}" '
            f'secretKey="{AWS_USER["AWS_SECRET_ACCESS_KEY"]}" region="{AWS_USER["AWS_REGION"]}";'
        ),
    }
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "broker-store.pem")}
    certificates = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    return {
        "offsets.retention.minutes": "1440",
        **{f"listener.name.login.{name}": value for name, value in {**stores, **login}.items()},
        **{f"listener.name.certs.{name}": value for name, value in {**stores, **certificates}.items()},
        **{f"listener.name.msk.{name}": value for name, value in {**stores, **msk_login}.items()},
    }


def _clients(folder: Path, url: str) -> dict[str, dict[str, str]]:
    """Return the settings of the page with addresses, files, names and secrets of the test, and variants of them."""
    own = {
        "/etc/kafka/ca.pem": str(folder / "ca.pem"),
        "/etc/kafka/client.pem": str(folder / "locked.pem"),
        "/etc/kafka/truststore.jks": str(folder / "trust.jks"),
        "/etc/kafka/keystore.jks": str(folder / "client.jks"),
        "https://login.example.com/oauth2/token": url,
        "my_company.kafka_tokens:event_hubs": f"{token_provider.__name__}:token",
        "env:API_KEY": USER,
    }

    def replaced(text: str) -> str:
        for example, value in own.items():
            text = text.replace(example, value)
        return re.sub("env:[A-Z_]+", PASSWORD, text)

    texts = [replaced(each.text) for each in blocks(PAGE) if each.language == "properties" and not each.why_not_run]
    pairs = [dict(line.removeprefix("kafka.").split(" = ", 1) for line in text.splitlines()) for text in texts]
    on_page = dict(zip(ON_PAGE, pairs, strict=True))
    scram = on_page["SCRAM-SHA-512"]
    # The page relies on the authorities of the operating system, and those of the test are private.
    trusting = {name: scram[name] for name in ("ssl.truststore.type", "ssl.truststore.location")}
    for way in ("PLAIN", "token endpoint", MSK, "token provider"):
        on_page[way] = trusting | on_page[way]
    [addition] = re.findall(r'`(ssl\.truststore\.type="PEM" .+?)`', replaced((ROOT / PAGE).read_text()))
    module = on_page["token endpoint"]["sasl.jaas.config"]
    on_page["token endpoint"]["sasl.jaas.config"] = f"{module.removesuffix(';')} {addition};"
    return on_page | {
        "SCRAM-SHA-256": {name: value.replace("512", "256") for name, value in scram.items()},
        "JKS": {name: value.replace(".jks", "-old.jks") for name, value in on_page["Java stores"].items()},
        "PEM text": {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": (folder / "ca.pem").read_text(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": (folder / "client.pem").read_text(),
            "ssl.keystore.key": (folder / "locked.key").read_text(),
            "ssl.key.password": PASSWORD,
        },
    }


class _Endpoint(BaseHTTPRequestHandler):
    """The token endpoint of an identity service: a token for each request with the client's id and secret."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        is_known = self.headers.get("Authorization") == f"Basic {login}"
        is_valid = is_known and form.get("grant_type") == ["client_credentials"]
        reply = {"access_token": token_provider.jwt(60)[0], "token_type": "Bearer", "expires_in": 60}
        body = json.dumps(reply if is_valid else {"error": "invalid_client"}).encode()
        self.send_response(200 if is_valid else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def token_endpoint(folder: Path) -> Iterator[str]:
    """Serve tokens over TLS on a free port of this machine, with the broker's certificate, and return the URL."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "broker.pem", folder / "broker.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()
