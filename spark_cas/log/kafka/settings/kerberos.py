"""Translate a Kerberos login (GSSAPI) to librdkafka's settings, for a client library that supports it.

librdkafka authenticates through libsasl2 or, on Windows, through SSPI. It requests a ticket by a shell command with
the principal and the path of the keytab, so both are checked for characters that a shell interprets.
"""

import re
from collections.abc import Mapping
from functools import cache

from spark_cas.core.errors import OptionError

MECHANISM = "GSSAPI"
LOGIN_MODULE = "Krb5LoginModule"
PACKAGE = "com.sun.security.auth.module."

NO_KERBEROS = (
    "Kerberos (GSSAPI) is not supported by this client: it needs a confluent-kafka that is built from source, with a "
    "librdkafka that has libsasl2, and the published wheels of confluent-kafka have none. Use kafka.sasl.mechanism "
    "SCRAM-SHA-512 or OAUTHBEARER, or mutual TLS."
)

_SERVICE, _PRINCIPAL, _KEYTAB = "sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab"
_OPTIONS = {"serviceName": _SERVICE, "principal": _PRINCIPAL, "keyTab": _KEYTAB}
"""The options of the login module that have a librdkafka setting, which is also accepted as an option."""
_WITHOUT_EFFECT = frozenset(
    {
        "debug",
        "doNotPrompt",
        "isInitiator",
        "refreshKrb5Config",
        "renewTGT",
        "storeKey",
        "useKeyTab",
        "useTicketCache",
    }
)
"""Options of the login module that do not change the login: with a keytab the client uses it, else the cache."""
_FORMS = {
    _SERVICE: re.compile(r"[\w.-]+", re.ASCII),
    _PRINCIPAL: re.compile(r"\w[\w.-]*(/[\w.-]+)?(@[\w.-]+)?", re.ASCII),
    _KEYTAB: re.compile(r"/[\w./ @+,=-]+", re.ASCII),
}

KERBEROS_NAMES = frozenset(_FORMS)
"""The names of settings that `kerberos_settings` reads."""


@cache
def client_has_kerberos() -> bool:
    """Return whether the installed librdkafka supports GSSAPI. A client that requires a missing feature fails."""
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - only for a login with Kerberos

    try:
        Producer({"builtin.features": "sasl_gssapi", "log_level": 0})
    except KafkaException:
        return False
    return True


def kerberos_settings(values: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the login under librdkafka's names.

    Args:
        values: Settings, of which only those in ``KERBEROS_NAMES`` are read.
        options: The options of the login module in ``sasl.jaas.config``.

    Raises:
        OptionError: An option is not supported, given twice, or has a form that is not accepted.
    """
    if options.keys() - _OPTIONS.keys() - _WITHOUT_EFFECT:
        raise OptionError(
            f"option kafka.sasl.jaas.config may give the {LOGIN_MODULE} only {', '.join(_OPTIONS)} and "
            f"{', '.join(sorted(_WITHOUT_EFFECT))}, but has another name too. Remove it. For another ticket cache, "
            f"set the environment variable KRB5CCNAME."
        )
    result = {name: values[name] for name in _FORMS if name in values}
    for option, name in _OPTIONS.items():
        if option in options and result.setdefault(name, options[option]) != options[option]:
            raise OptionError(f"option kafka.{name} differs from {option} in kafka.sasl.jaas.config. Leave one out.")
    for name, value in result.items():
        if _FORMS[name].fullmatch(value) is None:
            raise OptionError(
                f"option kafka.{name} has a form that is not supported: letters, digits and simple punctuation, and "
                f"a path that begins with a slash. It cannot be a reference such as env:NAME."
            )
    if (_KEYTAB in result) != (_PRINCIPAL in result):
        raise OptionError(
            f"option kafka.{_KEYTAB} needs kafka.{_PRINCIPAL}, and vice versa. Set both, here or in "
            "kafka.sasl.jaas.config, or neither for the ticket cache."
        )
    if _KEYTAB not in result:
        # The client requests no ticket, and uses those in the cache.
        result["sasl.kerberos.min.time.before.relogin"] = "0"
    return result
