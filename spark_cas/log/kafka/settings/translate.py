"""Translate client settings from the names of Kafka's Java client to librdkafka's, with an allowlist.

Users of Spark's own connector can keep their ``kafka.*`` options. A setting with a true equivalent is translated. A
setting that cannot break a guarantee is ignored. Any other setting is rejected by name, with the fix.

All functions here are pure. Files and environment variables are read when a client is created
(`spark_cas.log.kafka.settings.secrets`).
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings import kerberos
from spark_cas.log.kafka.settings.client_settings import (
    BY_JAVA_NAME,
    EVERY,
    SETTINGS,
    Client,
    holds_instead,
    one_of,
    reason_against,
    text,
)
from spark_cas.log.kafka.settings.sasl import SASL_NAMES, sasl_settings
from spark_cas.log.kafka.settings.tls import TLS_NAMES, tls_settings

_PROTOCOL = "security.protocol"
_protocol = one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")

ALLOWED = frozenset({*BY_JAVA_NAME, *SASL_NAMES, *TLS_NAMES, _PROTOCOL})
"""The accepted Java names that have an effect, in lower case."""

_SASL_NAMES = SASL_NAMES | kerberos.KERBEROS_NAMES

_CLIENTS_OF = {setting.rdkafka: setting.clients for setting in SETTINGS}


def librdkafka_settings(
    java: Mapping[str, str], servers: str = "", token_provider: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Translate settings under Java's names, without ``kafka.``, to sorted pairs under librdkafka's names.

    Names are case-insensitive. Secrets and references such as ``env:NAME`` are kept unchanged. `for_client` and
    `resolve` prepare the pairs for a client. `check_transport` checks whether the credentials may be sent. Only
    Amazon MSK uses the ``servers``, the addresses of the brokers.

    Raises:
        OptionError: A setting is not allowed, its value is invalid, or settings contradict each other. The message
            names settings, never values.
    """
    values: dict[str, str] = {}
    for key, value in java.items():
        name = key.lower()
        if name in values:
            raise OptionError(f"option kafka.{name} is given twice, in different case. Leave one out.")
        values[name] = value
    values = {name: value for name, value in values.items() if holds_instead(name, value) is None}
    for name in sorted(each for each in values if not is_allowed(each)):
        raise OptionError(f"option kafka.{name} may not be set. {reason_against(name) or _nearest(name)}")
    result = {**_tuning(values), **_security(values, servers, token_provider)}
    return tuple(sorted(result.items()))


def is_allowed(name: str) -> bool:
    """Return whether a setting, by its Java name, has an effect. Those of Kerberos depend on the client library."""
    return name in ALLOWED or (name in kerberos.KERBEROS_NAMES and kerberos.client_has_kerberos())


def for_client(pairs: Iterable[tuple[str, str]], client: Client) -> tuple[tuple[str, str], ...]:
    """Return the pairs under librdkafka's names that apply to a kind of client.

    Other clients would ignore the remaining pairs with a warning, or interpret them differently.
    """
    return tuple((name, value) for name, value in pairs if client in _CLIENTS_OF.get(name, EVERY))


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, ALLOWED, n=1)
    hint = f" Did you mean kafka.{near[0]}?" if near else " Leave it out."
    return f"Settings of the client are passed on only when they are known to be safe.{hint}"


def _checked(name: str, value: str, convert: Callable[[str], str]) -> str:
    try:
        return convert(value)
    except ValueError as expected:
        raise OptionError(f"option kafka.{name} must be {expected}, but has another value.") from None


def _tuning(values: Mapping[str, str]) -> dict[str, str]:
    result = {
        setting.rdkafka: _checked(name, values[name], setting.convert)
        for name, setting in BY_JAVA_NAME.items()
        if name in values
    }
    first, most = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    if first in result:
        # As Java does: if only the first backoff is set, the backoff does not grow.
        result.setdefault(most, result[first])
        if int(result[most]) < int(result[first]):
            raise OptionError(f"option kafka.{most} must be at least kafka.{first}, but is lower.")
    # Otherwise each request queued after a waiting fetch would time out. librdkafka only warns.
    if int(result.get("fetch.wait.max.ms", 500)) + 1000 > int(result.get("socket.timeout.ms", 60_000)):
        raise OptionError(
            "option kafka.request.timeout.ms (default 60000) must be at least 1000 above kafka.fetch.max.wait.ms "
            "(default 500), but is lower."
        )
    return result


def _security(values: Mapping[str, str], servers: str, token_provider: str | None) -> dict[str, str]:
    """Return the security settings. Reject those that the protocol does not use, which Java would ignore."""
    for name in sorted(values.keys() & (_SASL_NAMES | TLS_NAMES)):
        if name != "ssl.endpoint.identification.algorithm":  # it may be empty, and has an error of its own
            _checked(name, values[name], text)
    protocol = _checked(_PROTOCOL, values[_PROTOCOL], _protocol) if _PROTOCOL in values else "plaintext"
    result = {_PROTOCOL: protocol} if _PROTOCOL in values else {}
    if token_provider is not None and not protocol.startswith("sasl"):
        raise OptionError(
            f"option tokenProvider needs kafka.{_PROTOCOL} SASL_SSL and kafka.sasl.mechanism OAUTHBEARER. Set both, "
            "or leave it out."
        )
    for prefix, names, with_it, translate in (
        ("sasl", _SASL_NAMES, "SASL_SSL", partial(sasl_settings, servers=servers, token_provider=token_provider)),
        ("ssl", TLS_NAMES, "SSL or SASL_SSL", tls_settings),
    ):
        surplus = sorted(values.keys() & names)
        if prefix in protocol.split("_"):
            result.update(translate(values))
        elif surplus:
            message = f"{protocol.upper()}, which" if _PROTOCOL in values else "missing; PLAINTEXT, which it then is,"
            raise OptionError(
                f"option kafka.{surplus[0]} is given, but kafka.{_PROTOCOL} is {message} would pass over it. Set "
                f"kafka.{_PROTOCOL} to {with_it}, or leave out every option that begins with kafka.{prefix}."
            )
    return result
