"""Translate the settings of librdkafka to those of kafka-python, which has the requests of KIP-664."""

import ssl
from collections.abc import Callable, Mapping
from typing import Any

from spark_cas.core.errors import OptionError

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_BEARER = "OAUTHBEARER"
_UNSUPPORTED = {
    "ssl.keystore.location": "a key store of type PKCS12",
    "ssl.certificate.pem": "a client certificate as text",
}


def kafka_python_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of kafka-python's admin client.

    Args:
        values: Settings under librdkafka's names, with resolved secrets, as for an admin client.

    Raises:
        OptionError: kafka-python does not support a setting. The message names no value.
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
        result |= _sasl(values)
    if protocol.endswith("SSL"):
        result["ssl_context"] = _context(values)
    return result


def _sasl(values: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = str(values.get("sasl.mechanism", ""))
    if mechanism == _BEARER and "oauth_cb" in values:
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _token_provider(values["oauth_cb"])}
    if mechanism not in _MECHANISMS:
        supported = f"{', '.join(_MECHANISMS)}, and {_BEARER} with tokenProvider"
        raise OptionError(
            f"the requests for transactions support kafka.sasl.mechanism {supported}, not "
            f"{mechanism or 'none'}. Use a user with one of these, or kafka-transactions.sh."
        )
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": values.get("sasl.username"),
        "sasl_plain_password": values.get("sasl.password"),
    }


def _token_provider(token_of: Callable[[str], tuple[str, float, str, dict[str, str]]]) -> object:
    """Return kafka-python's token provider for an ``oauth_cb`` of librdkafka."""
    from kafka.net.sasl.oauth import AbstractTokenProvider  # noqa: PLC0415 - kafka-python is optional

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token_of("")[0]

        def extensions(self) -> dict[str, str]:
            return token_of("")[3]

    return Provider()


def _context(values: Mapping[str, Any]) -> ssl.SSLContext:
    for name, label in _UNSUPPORTED.items():
        if name in values:
            raise OptionError(
                f"the requests for transactions do not support {label}. Use kafka.ssl.keystore.type=PEM with "
                f"kafka.ssl.keystore.location, or kafka-transactions.sh."
            )
    try:
        result = ssl.create_default_context(cafile=values.get("ssl.ca.location"), cadata=values.get("ssl.ca.pem"))
        if "ssl.certificate.location" in values:
            result.load_cert_chain(
                values["ssl.certificate.location"], values.get("ssl.key.location"), values.get("ssl.key.password", "")
            )
    except (OSError, ValueError):
        raise OptionError(
            "the certificates of the kafka.ssl options cannot be read. Check that the files exist here, are PEM, and "
            "that kafka.ssl.key.password is right."
        ) from None
    return result
