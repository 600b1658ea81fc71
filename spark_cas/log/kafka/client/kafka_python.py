"""The settings of kafka-python's admin client, from those of librdkafka.

Tokens and certificates of a login that kafka-python does not read itself are read here.
"""

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPException
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from spark_cas.core.errors import ConditionalLogError, OptionError, StorageError
from spark_cas.log.deadline import call_within
from spark_cas.log.kafka.client.tokens import Token
from spark_cas.log.kafka.settings.sasl import CA_OF_ENDPOINT, EXTENSIONS
from spark_cas.log.kafka.settings.tls import key_store_pem

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_URL = "sasl.oauthbearer.token.endpoint.url"
_MOST_REPLY_BYTES = 1_000_000


def kafka_python_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of kafka-python's admin client for those of librdkafka's, with resolved secrets.

    For the login with a token endpoint, this requests a token. All connections of the client use it, so the client
    must not stay open.

    Raises:
        OptionError: kafka-python does not support a setting, a certificate cannot be read, or the token endpoint
            rejected the request.
        StorageError: The token endpoint did not answer, or is overloaded.
    """
    timeout_ms = int(values["socket.timeout.ms"])
    protocol = str(values.get("security.protocol", "plaintext")).upper()
    result: dict[str, Any] = {
        "bootstrap_servers": [each.strip() for each in values["bootstrap.servers"].split(",") if each.strip()],
        "security_protocol": protocol,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
    }
    if "client.id" in values:
        result["client_id"] = values["client.id"]
    if protocol.startswith("SASL"):
        result |= _sasl(values, timeout_ms / 1000)
    if protocol.endswith("SSL"):
        result["ssl_context"] = _context(values)
    return result


def _sasl(values: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    mechanism = str(values.get("sasl.mechanism", ""))
    if mechanism in _MECHANISMS:
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": values.get("sasl.username"),
            "sasl_plain_password": values.get("sasl.password"),
        }
    if "oauth_cb" in values:
        token_of = values["oauth_cb"]
    elif _URL in values:
        token_of = _tokens_of_endpoint(values, seconds)
    else:
        raise OptionError(
            f"the requests for transactions do not support kafka.sasl.mechanism {mechanism or 'none'}. Use a user "
            f"with another one, or kafka-transactions.sh."
        )
    return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _token_provider(token_of)}


def _token_provider(token_of: Callable[[str], Token]) -> object:
    """Return kafka-python's token provider for an ``oauth_cb`` of librdkafka."""
    from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415 - kafka-python is optional

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token_of("")[0]

        def extensions(self) -> dict[str, str]:
            return token_of("")[3]

    return Provider()


def _tokens_of_endpoint(values: Mapping[str, Any], seconds: float) -> Callable[[str], Token]:
    """Request a token with client credentials (RFC 6749, section 4.4), as librdkafka does."""
    form = {"grant_type": "client_credentials"}
    if "sasl.oauthbearer.scope" in values:
        form["scope"] = values["sasl.oauthbearer.scope"]
    user = f"{values['sasl.oauthbearer.client.id']}:{values['sasl.oauthbearer.client.secret']}"
    headers = {"Accept": "application/json", "Authorization": f"Basic {b64encode(user.encode()).decode()}"}
    request = Request(values[_URL], urlencode(form).encode(), headers)  # noqa: S310 - the option allows only https
    # Without a handler of redirects, which could send the secret to another machine.
    opener = OpenerDirector()
    trusted = {"ssl.ca.location": values[CA_OF_ENDPOINT]} if CA_OF_ENDPOINT in values else {}
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler(context=_context(trusted))):
        opener.add_handler(handler)
    replies: list[tuple[int, bytes]] = []

    def fetch() -> None:
        with opener.open(request, timeout=seconds) as response:
            replies.append((response.status, response.read(_MOST_REPLY_BYTES)))

    try:
        call_within(seconds, fetch)
    except (OSError, ValueError, HTTPException) as error:
        # Without the text of the error, which may contain settings.
        raise _no_token(StorageError, type(error.reason if isinstance(error, URLError) else error).__name__) from None
    [(status, content)] = replies
    token = _token_in(content) if status == HTTPStatus.OK else None
    if token is None:
        transient = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        raise _no_token(StorageError if transient else OptionError, f"HTTP status {status}")
    extensions = dict(each.split("=", 1) for each in values.get(EXTENSIONS, "").split(",") if each)
    return lambda _config: (token, 0.0, "", extensions)


def _token_in(content: bytes) -> str | None:
    try:
        token = json.loads(content)["access_token"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    # A control character would end the token in the request to the broker.
    return token if isinstance(token, str) and token.isascii() and token.isprintable() else None


def _no_token(kind: type[ConditionalLogError], reason: str) -> ConditionalLogError:
    return kind(
        f"the token endpoint of option kafka.{_URL} returned no token ({reason}). Nothing was changed. Check that "
        f"this machine reaches it, and that the id and secret of the client are right."
    )


def _context(values: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a TLS context that verifies the server's certificate and name as librdkafka does.

    Since Python 3.13, ``ssl.create_default_context`` rejects some certificates that librdkafka accepts.
    """
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    key, password = _key_pem(values), values.get("ssl.keystore.password", values.get("ssl.key.password", ""))
    try:
        if "ssl.ca.location" in values:
            result.load_verify_locations(cafile=values["ssl.ca.location"])
        elif "ssl.ca.pem" in values:
            # Python rejects a comment that is not ASCII, such as a name that keytool prints.
            result.load_verify_locations(cadata=values["ssl.ca.pem"].encode("ascii", "ignore").decode())
        else:
            result.load_default_certs()
        if "ssl.certificate.location" in values:
            result.load_cert_chain(values["ssl.certificate.location"], values.get("ssl.key.location"), password)
        elif key is not None:
            # Python reads a key from files only. Other users cannot read this one.
            with NamedTemporaryFile(suffix=".pem") as file:
                file.write(key)
                file.flush()
                result.load_cert_chain(file.name, password=password)
    except (OSError, ValueError):
        raise OptionError(
            "the certificates of the kafka.ssl options cannot be read. Check that they are PEM, that the files exist "
            "here, that kafka.ssl.key.password is right, and that this user may write temporary files."
        ) from None
    return result


def _key_pem(values: Mapping[str, Any]) -> bytes | None:
    """Return the client's certificates and key if their settings are no PEM files."""
    if "ssl.keystore.location" in values:
        return key_store_pem(values)
    if "ssl.certificate.pem" in values:
        return f"{values['ssl.certificate.pem']}\n{values['ssl.key.pem']}".encode()
    return None
