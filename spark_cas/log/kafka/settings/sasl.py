"""Translate the ``sasl.*`` settings of Java's client to those of librdkafka, and check where secrets are sent."""

import ipaddress
import logging
import re
from collections.abc import Iterable, Mapping
from functools import cache
from urllib.parse import urlsplit

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings import kerberos, msk
from spark_cas.log.kafka.settings.jaas import Login, parse_jaas
from spark_cas.log.kafka.settings.tls import CONVERT_TRUST_STORE
from spark_cas.log.secret_references import FUNCTION, PREFIXES

_LOG = logging.getLogger("spark_cas")

_URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - the name of a setting
_SCOPE = "sasl.oauthbearer.scope"

SASL_NAMES = frozenset({"sasl.mechanism", "sasl.jaas.config", _URL, _CLIENT_ID, _CLIENT_SECRET, _SCOPE})
"""Java's names that `sasl_settings` reads."""

MODULE_OF = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    msk.MECHANISM: msk.LOGIN_MODULE,
    kerberos.MECHANISM: kerberos.LOGIN_MODULE,
}
"""The login module for each mechanism. Kerberos needs a client library that has it."""

_OAUTH = {
    _CLIENT_ID: ("clientId", "sasl.oauthbearer.client.id"),
    _CLIENT_SECRET: ("clientSecret", "sasl.oauthbearer.client.secret"),
    _SCOPE: ("scope", "sasl.oauthbearer.scope"),
}
"""Java's name, with its older name as an option of the login module, and librdkafka's name."""

_TRUST_TYPE, _TRUST_LOCATION = "ssl.truststore.type", "ssl.truststore.location"
"""Options of the login module, for the certificate of the token endpoint (KIP-768)."""
CA_OF_ENDPOINT = "https.ca.location"
"""librdkafka's name."""

_EXTENSION = "extension_"
EXTENSIONS = "sasl.oauthbearer.extensions"
"""librdkafka's name."""

PROVIDER = "sasl.oauthbearer.config"
"""librdkafka's name of the text that it hands to the function that returns tokens. Here it is the token provider."""

# Without a scheme, as in Spark's connector. Other forms that the client accepts are not treated as loopback.
_SERVER = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]/@\s]+))(?::\d+)?")
_SENDS_ITS_SECRET = ("PLAIN", "OAUTHBEARER")


def sasl_settings(values: Mapping[str, str], servers: str = "", token_provider: str | None = None) -> dict[str, str]:
    """Return the credentials under librdkafka's names.

    Args:
        values: Settings under Java's names, none of them blank. Only those in ``SASL_NAMES`` are read, and those of
            Kerberos. A password may be a reference such as ``env:NAME``, and stays one.
        servers: The addresses of the brokers. Those of Amazon MSK contain its region.
        token_provider: The option ``tokenProvider``: the function that returns the tokens of OAUTHBEARER.

    Raises:
        OptionError: The mechanism is missing or not supported, its login is missing, or both do not match.
    """
    mechanism = _mechanism(values)
    login = parse_jaas(values["sasl.jaas.config"]) if "sasl.jaas.config" in values else None
    if login is not None and login.module != MODULE_OF[mechanism]:
        raise OptionError(
            f"option kafka.sasl.jaas.config names another login module than {MODULE_OF[mechanism]}, which "
            f"kafka.sasl.mechanism {mechanism} needs. Change the one or the other."
        )
    options = login.options if login else {}
    if token_provider is not None:
        result = _provided(values, options, mechanism, token_provider)
    elif mechanism == kerberos.MECHANISM:
        _check_surplus(values, mechanism)
        result = kerberos.kerberos_settings(values, options)
    elif mechanism == "OAUTHBEARER":
        result = _oidc(values, options)
    elif mechanism == msk.MECHANISM:
        _check_surplus(values, mechanism)
        mechanism, result = "OAUTHBEARER", {PROVIDER: msk.msk_provider(options, servers)}
    else:
        result = _password(values, login, mechanism)
    return {"sasl.mechanism": mechanism, **result}


def _mechanism(values: Mapping[str, str]) -> str:
    mechanism = values.get("sasl.mechanism", kerberos.MECHANISM).strip().upper()
    if mechanism in MODULE_OF and (mechanism != kerberos.MECHANISM or kerberos.client_has_kerberos()):
        for name in sorted(values.keys() & kerberos.KERBEROS_NAMES if mechanism != kerberos.MECHANISM else ()):
            raise OptionError(f"option kafka.{name} is only for kafka.sasl.mechanism GSSAPI. Leave it out.")
        return mechanism
    has_kerberos = kerberos.client_has_kerberos()
    mechanisms = ", ".join(each for each in MODULE_OF if has_kerberos or each != kerberos.MECHANISM)
    if "sasl.mechanism" not in values:
        raise OptionError(
            f"option kafka.sasl.mechanism is missing, and Java's default is GSSAPI. {kerberos.NO_KERBEROS} Set it to "
            f"one of {mechanisms}."
        )
    reason = f" {kerberos.NO_KERBEROS}" if mechanism == kerberos.MECHANISM else ""
    raise OptionError(f"option kafka.sasl.mechanism must be one of {mechanisms}, but is not.{reason}")


def _check_surplus(settings: Mapping[str, str], mechanism: str) -> None:
    surplus = sorted(settings.keys() & {_URL, *_OAUTH})
    if surplus:
        other = "option tokenProvider" if mechanism == "OAUTHBEARER" else f"kafka.sasl.mechanism {mechanism}"
        raise OptionError(
            f"option kafka.{surplus[0]} is only for kafka.sasl.mechanism OAUTHBEARER with a token endpoint, not for "
            f"{other}. Leave it out."
        )


def _provided(
    settings: Mapping[str, str], options: Mapping[str, str], mechanism: str, provider: str
) -> dict[str, str]:
    """Return the settings for tokens from a function, and the SASL extensions of the login."""
    if mechanism != "OAUTHBEARER":
        raise OptionError(
            f"option tokenProvider is for kafka.sasl.mechanism OAUTHBEARER, not for {mechanism}. Change the one, or "
            "leave out the other."
        )
    _check_surplus(settings, mechanism)
    if FUNCTION.fullmatch(provider.strip()) is None:
        raise OptionError("option tokenProvider must be package.module:function, but is not.")
    extensions = {name.removeprefix(_EXTENSION): value for name, value in options.items()}
    if not all(name.startswith(_EXTENSION) for name in options):
        raise OptionError(
            "option kafka.sasl.jaas.config may give the OAuthBearerLoginModule only extension_<name> if option "
            "tokenProvider is set, and gives it something else. Leave that out."
        )
    return {PROVIDER: provider.strip(), **({EXTENSIONS: _joined(extensions)} if extensions else {})}


def _password(settings: Mapping[str, str], login: Login | None, mechanism: str) -> dict[str, str]:
    _check_surplus(settings, mechanism)
    if login is None:
        raise OptionError(
            f"option kafka.sasl.jaas.config is missing: kafka.sasl.mechanism {mechanism} needs the "
            f"{MODULE_OF[mechanism]} with username and password."
        )
    if login.options.keys() != {"username", "password"} or not all(login.options.values()):
        raise OptionError(
            "option kafka.sasl.jaas.config must set exactly username and password for its login module, and neither "
            "may be empty. Delegation tokens are not supported."
        )
    return {"sasl.username": login.options["username"], "sasl.password": login.options["password"]}


def _oidc(settings: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    extensions = {key.removeprefix(_EXTENSION): options[key] for key in options if key.startswith(_EXTENSION)}
    known = {_TRUST_TYPE, _TRUST_LOCATION, *(old for old, _ in _OAUTH.values())}
    if options.keys() - known - {_EXTENSION + key for key in extensions}:
        raise OptionError(
            "the OAuthBearerLoginModule in option kafka.sasl.jaas.config takes only clientId, clientSecret, scope, "
            f"{_TRUST_TYPE}, {_TRUST_LOCATION} and extension_<name>, but the option has another name too. Remove it."
        )
    result = {"sasl.oauthbearer.method": "oidc", _URL: _checked_url(settings), **_trusted(options)}
    for java, (old, rdkafka) in _OAUTH.items():
        if java in settings and old in options:
            raise OptionError(f"option kafka.{java} is given and {old} in kafka.sasl.jaas.config too. Leave one out.")
        value = settings.get(java) or options.get(old)
        if value:
            result[rdkafka] = value
        elif java != _SCOPE:
            raise OptionError(
                f"option kafka.{java} is missing, and {old} in kafka.sasl.jaas.config, either of which OAUTHBEARER "
                "needs."
            )
    if extensions:
        result[EXTENSIONS] = _joined(extensions)
    return result


def _checked_url(values: Mapping[str, str]) -> str:
    """Return the token endpoint, to which the client sends its secret. Raises OptionError unless it is secure."""
    url = values.get(_URL, "").strip()
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        raise OptionError(
            f"option kafka.{_URL} must be the https:// address of the token endpoint. OAUTHBEARER needs it, or "
            "option tokenProvider, but the option is missing or has another value."
        )
    return url


def _trusted(options: Mapping[str, str]) -> dict[str, str]:
    """Return the certificates that the client trusts at the token endpoint. By default, those of the system."""
    if not options.keys() & {_TRUST_TYPE, _TRUST_LOCATION}:
        return {}
    location = options.get(_TRUST_LOCATION, "")
    if options.get(_TRUST_TYPE, "").upper() != "PEM" or not location or location.startswith(PREFIXES):
        raise OptionError(
            f"the trust store of the token endpoint in option kafka.sasl.jaas.config must be a PEM file: set "
            f"{_TRUST_TYPE} to PEM, and {_TRUST_LOCATION} to its path. For another format: {CONVERT_TRUST_STORE}"
        )
    return {CA_OF_ENDPOINT: location}


def _joined(extensions: Mapping[str, str]) -> str:
    """Join extensions as librdkafka expects them. For the names, see RFC 7628, section 3.1."""
    if not all(re.fullmatch("[A-Za-z]+", key) for key in extensions) or any(
        re.search(r"[,=\x00-\x1f]", value) or not value for value in extensions.values()
    ):
        raise OptionError(
            "option kafka.sasl.jaas.config gives an extension_<name> that cannot be sent: the name must be of "
            "letters, the value not empty and without comma or equals sign."
        )
    return ",".join(f"{key}={value}" for key, value in sorted(extensions.items()))


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own: ``localhost``, 127.0.0.0/8 or ``::1``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_transport(bootstrap: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Prevent a secret from being sent unencrypted to another machine.

    With PLAIN and OAUTHBEARER, the client sends the password or token itself. So over SASL_PLAINTEXT, every server
    has to be on the loopback interface, as for tests and tunnels. SCRAM sends only a proof, and is allowed. But its
    rows are not encrypted, so the connector logs a warning once per process.

    The check covers the bootstrap servers only. A broker at the end of a tunnel may announce another host for later
    connections. The settings have librdkafka's names.

    Raises:
        OptionError: A secret would be sent unencrypted. The message names no server.
    """
    settings = dict(pairs)
    if settings.get("security.protocol") != "sasl_plaintext":
        return
    servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
    if servers and all(_is_local(server) for server in servers):
        return
    mechanism = settings.get("sasl.mechanism", "")
    if mechanism in _SENDS_ITS_SECRET:
        raise OptionError(
            f"option kafka.security.protocol is SASL_PLAINTEXT, and kafka.sasl.mechanism {mechanism} would send its "
            "secret in the clear to a server that is not this machine. Set kafka.security.protocol to SASL_SSL, or "
            "use SCRAM-SHA-512, which sends no secret."
        )
    log_unencrypted(mechanism)


@cache
def log_unencrypted(mechanism: str) -> None:
    """Log once per process that the rows of a connection with a login are not encrypted."""
    _LOG.warning(
        "option kafka.security.protocol is SASL_PLAINTEXT: kafka.sasl.mechanism %s hides the password, but rows "
        "cross the network unencrypted, and other machines on the path can change them. Use SASL_SSL.",
        mechanism,
    )


def _is_local(server: str) -> bool:
    result = _SERVER.fullmatch(server)
    return result is not None and is_loopback(result["v6"] or result["host"])
