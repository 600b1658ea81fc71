"""Tokens of OAUTHBEARER from a Python function, shared by the clients of a process.

A client requests a token when it starts, and again after 80% of the token's lifetime, from a thread of librdkafka.
"""

import logging
import os
import re
import threading
import time
from urllib.parse import parse_qsl

from spark_cas.core.errors import OptionError
from spark_cas.log.secret_references import call_function

_LOG = logging.getLogger("spark_cas")
_REUSED_SHARE = 0.5
"""A client that starts uses a token of another client while at least this share of its lifetime is left."""
_LATEST_EXPIRY = 10**11
"""A later expiry time, after the year 5000, is in milliseconds."""
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
        self._token = ""
        self._received = self._expiry = 0.0
        self._failure: OptionError | None = None

    def __repr__(self) -> str:
        return "Tokens(<hidden>)"

    def __call__(self, _config: str) -> Token:
        """Return a token for a client of librdkafka.

        If the function fails, the clients keep the earlier token until it expires.

        Raises:
            OptionError: The function failed, and there is no other token. The client retries after 10 s.
        """
        with self._lock:
            now = time.time()
            if self._expiry - now < _REUSED_SHARE * (self._expiry - self._received):
                try:
                    result = call_function("option tokenProvider", self._name, self._arguments)
                    self._token, self._expiry = _checked(result)
                    self._received, self._failure = time.time(), None
                except OptionError as error:
                    self._failure = error.with_message(error.message)
                    if self._expiry <= time.time():
                        raise
                    _LOG.warning("the present token expires in %.0f s: %s", self._expiry - time.time(), error.message)
            return self._token, self._expiry, "", self._extensions

    def check(self, *, refused: bool = False) -> None:
        """Raise OptionError if the function failed, and the earlier token has expired or the brokers refused it."""
        failure = self._failure
        if failure is not None and (refused or self._expiry <= time.time()):
            # A new error, because its traceback would keep the client, and the client keeps this object.
            raise failure.with_message(failure.message)


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


def _checked(result: object) -> tuple[str, float]:
    """Return the token and its expiry time. Raises OptionError if they are not valid, without showing them."""
    match result:
        case (str(token), int() | float() as expiry) if _TOKEN.fullmatch(token):
            valid = time.time() < expiry < _LATEST_EXPIRY
        case _:
            raise OptionError(
                "option tokenProvider: the function must return a tuple of the token, a str of ASCII characters, and "
                "its expiry time in seconds since 1970. It returned something else."
            )
    if not valid:
        raise OptionError(
            "option tokenProvider: the token that the function returned has expired, or its expiry time is not in "
            "seconds since 1970."
        )
    return token, float(expiry)
