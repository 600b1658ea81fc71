"""Parse the value of ``sasl.jaas.config``: one login module and its options. No part of the value is ever shown."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings import kerberos, msk

_KAFKA = "org.apache.kafka.common.security."
_SHADED = "kafkashaded."
"""The prefix of Kafka's class names in Spark distributions with a shaded copy of Kafka."""

MODULES = {
    f"{_KAFKA}plain.PlainLoginModule": "PlainLoginModule",
    f"{_KAFKA}scram.ScramLoginModule": "ScramLoginModule",
    f"{_KAFKA}oauthbearer.OAuthBearerLoginModule": "OAuthBearerLoginModule",
    f"{msk.PACKAGE}{msk.LOGIN_MODULE}": msk.LOGIN_MODULE,
}

# Tokens as in java.io.StreamTokenizer with the setup of Kafka's JaasConfig, except that quotes must be closed.
_TOKEN = re.compile(
    r"""
      (?P<blank> \s+ | //[^\r\n]* | /\*.*?\*/ )
    | " (?P<double> (?: \\. | [^"\\\r\n] )* ) "
    | ' (?P<single> (?: \\. | [^'\\\r\n] )* ) '
    | (?P<word> [\w$.-]+ )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_END = (";", False)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Login:
    """A login module and its options."""

    module: str
    """The class without its package: one of the values of ``MODULES``, or that of Kerberos."""
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> Login:
    """Parse a login as Kafka does: ``<module> required <option>="<value>" ... ;``.

    Options may be in any order. Values are in double or single quotes with Java's escapes, or bare if they are plain
    words. Comments are ignored. The semicolon is required, because otherwise the end of a bare value with two slashes
    would be lost as a comment.

    Raises:
        OptionError: The text does not have this form, names several modules or an unsupported one, or repeats an
            option.
    """
    tokens = list(_tokens(text))
    if tokens[-1:] != [_END]:
        raise _error("it does not end with a semicolon")
    tokens.pop()
    if _END in tokens:
        raise _error("it holds more than one login module, and Kafka takes one")
    match tokens:
        case [(name, _), (flag, _), *remaining] if flag.lower() == "required":
            return Login(_module(name), _options(remaining))
        case _:
            raise _error("it does not begin with a login module and the word required")


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the tokens, each with whether it is a word or quoted, not a sign."""
    at = 0
    while at < len(text):
        result = _TOKEN.match(text, at)
        if result is None:
            raise _error("a value is not in double quotes, or a quote is not closed")
        at = result.end()
        match result.lastgroup:
            case "double" | "single" as quoted:
                yield _ESCAPE.sub(_unescaped, result[quoted]), True
            case "word" | "sign" as bare:
                yield result[bare], bare == "word"
            case _:
                pass


def _unescaped(escape: re.Match[str]) -> str:
    body = escape[1]
    return chr(int(body, 8)) if body[0] in "01234567" else _LETTERS.get(body, body)


def _module(name: str) -> str:
    if name == f"{kerberos.PACKAGE}{kerberos.LOGIN_MODULE}" and kerberos.client_has_kerberos():
        return kerberos.LOGIN_MODULE
    module = MODULES.get(name.removeprefix(_SHADED).removeprefix(msk.SHADED))
    if module is None:
        reason = f". {kerberos.NO_KERBEROS}" if name.endswith(f".{kerberos.LOGIN_MODULE}") else ""
        raise _error(f"its login module is not supported. Use one of {', '.join(MODULES)}{reason.removesuffix('.')}")
    return module


def _options(tokens: list[tuple[str, bool]]) -> dict[str, str]:
    options: dict[str, str] = {}
    while tokens:
        match tokens:
            case [(name, True), ("=", False), (value, True), *remaining]:
                if name in options:
                    raise _error("an option is given twice")
                options[name] = value
                tokens = remaining
            case _:
                raise _error('an option is not of the form name="value"')
    return options


def _error(result: str) -> OptionError:
    return OptionError(
        f"option kafka.sasl.jaas.config cannot be used: {result}. Example: "
        f'{_KAFKA}scram.ScramLoginModule required username="..." password="env:NAME"; '
        "with a backslash before each double quote or backslash inside a value."
    )
