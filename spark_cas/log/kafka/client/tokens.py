"""Tokens of OAUTHBEARER from a Python function, shared by the clients of a process.

A client requests a token when it starts, and again after 80% of the token's lifetime, from a thread of librdkafka.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from importlib import import_module
from urllib.parse import parse_qsl

from spark_cas.core.errors import ConditionalLogError, OptionError

_REUSED_SHARE = 0.5
"""A client that starts uses a token of another client while at least this share of its lifetime is left."""
_LONGEST_SECONDS = 3650 * 24 * 3600
"""An expiry time that is later is in milliseconds."""
_TOKEN = re.compile(r"[\x20-\x7e]+")

Token = tuple[str, float, str, dict[str, str]]
"""The token, its expiry time in seconds since 1970, the principal (unused), and the SASL extensions."""


class Tokens:
    """The tokens of one provider in this process. It is an ``oauth_cb`` of confluent-kafka.

    Args:
        provider: ``package.module:function``, for a built-in provider with keyword arguments as in a URL:
            ``package.module:function?region=eu-west-1``. The function returns the token and its expiry time in
            seconds since 1970.
        extensions: SASL extensions (RFC 7628), ``name=value`` separated by commas.
    """

    def __init__(self, provider: str, extensions: str = "") -> None:
        self._name, _, arguments = provider.partition("?")
        self._arguments = dict(parse_qsl(arguments))
        self._extensions = dict(each.split("=", 1) for each in extensions.split(",") if each)
        self._lock = threading.Lock()
        self._function: Callable[..., object] | None = None
        self._token = ""
        self._received = self._expiry = 0.0
        self._failure: OptionError | None = None

    def __repr__(self) -> str:
        return "Tokens(<hidden>)"

    def __call__(self, _config: str) -> Token:
        """Return a token for a client of librdkafka. Raises OptionError, which the client retries after 10 s."""
        with self._lock:
            now = time.time()
            if self._expiry - now < _REUSED_SHARE * (self._expiry - self._received) or self._failure is not None:
                self._refresh()
            return self._token, self._expiry, "", self._extensions

    def check(self) -> None:
        """Raise OptionError if the provider failed when a client last requested a token."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _refresh(self) -> None:
        try:
            if self._function is None:
                self._function = _imported(self._name)
            token, expiry = _checked(_called(self._function, self._arguments))
        except OptionError as error:
            self._failure = error.with_traceback(None)
            raise
        self._token, self._expiry, self._received, self._failure = token, expiry, time.time(), None


_OWN: dict[tuple[int, str, str], Tokens] = {}
"""The providers in use. The key has the process id: a lock may be held when the process forks."""


def tokens_of(provider: str, extensions: str = "") -> Tokens:
    """Return the tokens of a provider in this process, after it has returned a token that has not expired.

    Raises:
        OptionError: The function cannot be imported, failed, or returned no valid token.
    """
    tokens = _OWN.setdefault((os.getpid(), provider, extensions), Tokens(provider, extensions))
    tokens("")
    return tokens


def _imported(name: str) -> Callable[..., object]:
    module, _, function = name.partition(":")
    try:
        result = getattr(import_module(module), function)
    except Exception as error:  # noqa: BLE001 - a module may raise anything, and its text may contain a secret
        raise OptionError(
            f"option tokenProvider names a function that cannot be imported here ({type(error).__name__}). Install "
            "its module for the driver and every worker, or add its folder to PYTHONPATH."
        ) from None
    if not callable(result):
        raise OptionError("option tokenProvider names something else than a function.")
    return result  # type: ignore[no-any-return]


def _called(function: Callable[..., object], arguments: dict[str, str]) -> object:
    try:
        return function(**arguments)
    except ConditionalLogError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        raise OptionError(
            f"option tokenProvider: the function raised {type(error).__name__} instead of returning a token. To see "
            "its message, call it in a Python session of the same machine."
        ) from None


def _checked(result: object) -> tuple[str, float]:
    """Return the token and its expiry time. Raises OptionError if they are not valid, without showing them."""
    match result:
        case (str(token), int() | float() as expiry) if _TOKEN.fullmatch(token):
            left = expiry - time.time()
        case _:
            raise OptionError(
                "option tokenProvider: the function must return a tuple of the token, a str of ASCII characters, and "
                "its expiry time in seconds since 1970. It returned something else."
            )
    if not 0 < left < _LONGEST_SECONDS:
        raise OptionError(
            "option tokenProvider: the token that the function returned has expired, or its expiry time is not in "
            "seconds since 1970."
        )
    return token, float(expiry)
