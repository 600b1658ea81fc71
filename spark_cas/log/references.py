"""Resolve secrets that are given by reference, when a client is created, and call functions that options name.

A reference is ``env:NAME``, ``file:PATH`` or ``function:package.module:function``. Options are sent to every worker
and written to Spark's event log. A reference reveals nothing there. Each process that creates a client, driver or
worker, reads the secret itself.
"""

import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from spark_cas.core.errors import OptionError
from spark_cas.log import timing
from spark_cas.log.deadline import call_within

PREFIXES = ("env:", "file:", "function:")
FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
"""The name of a function: ``package.module:function``."""


def resolved(setting: str, value: str) -> str:
    """Return the value of a setting, or of its reference.

    One newline at the end of a file is not part of the secret. A function is called without arguments, for
    each new client, and by several threads at once.

    Raises:
        OptionError: A variable is not set, a file cannot be read, a function fails, or the value is empty or contains
            NUL. The message names the setting and the variable or function, never a path or a value.
    """
    if not value.startswith(PREFIXES):
        return value
    kind, _, reference = value.partition(":")
    if kind == "env":
        secret, place = _variable(setting, reference), "an environment variable"
    elif kind == "file":
        secret, place = _content(setting, reference), "a file"
    else:
        secret, place = _result(setting, reference), f"a result of the function {reference}"
    if not secret or "\0" in secret:
        raise OptionError(f"{setting} refers to {place} that is empty or holds NUL. Put the secret there.")
    return secret


def _variable(setting: str, name: str) -> str:
    # An invalid variable name may be a secret that happens to begin with env:, so do not show it.
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise OptionError(
            f"{setting} begins with env:, but no name of an environment variable follows. If the secret begins with "
            "env:, store it in a variable or file."
        )
    secret = os.environ.get(name)
    if secret is None:
        raise OptionError(
            f"{setting} refers to the environment variable {name}, which is not set in this process. Set it for the "
            f"driver and, as spark.executorEnv.{name}, for the workers."
        )
    return secret


def _content(setting: str, path: str) -> str:
    try:
        content = Path(path).read_bytes().decode()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with NUL
        raise OptionError(
            f"{setting} refers to a file that cannot be read here ({type(error).__name__}). The driver and every "
            "worker must have it under the same path, as UTF-8."
        ) from None
    return content.removesuffix("\n").removesuffix("\r")


def _result(setting: str, name: str) -> str:
    if FUNCTION.fullmatch(name) is None:
        raise OptionError(
            f"{setting} begins with function:, but no package.module:function follows. If the secret begins with "
            "function:, store it in a variable or file."
        )
    label = f"{setting} (function:{name})"
    secret = call_function(label, name, {})
    if not isinstance(secret, str):
        raise OptionError(f"{label}: the function must return a str, and returned something else.")
    return secret


def call_function(label: str, name: str, arguments: Mapping[str, str]) -> object:
    """Call a function in a thread, because it may never return, and return its result.

    ``label`` is the option, as an error shows it, and ``name`` matches `FUNCTION`.

    Raises:
        OptionError: The function cannot be imported, failed, or did not return.
    """
    results: list[object] = []
    seconds = 3 * timing.current().longest_request
    try:
        call_within(seconds, lambda: results.append(_called(label, name, arguments)))
    except TimeoutError:
        raise OptionError(
            f"{label}: the function did not return within {seconds:.0f} s. Check that this machine reaches the "
            "service that the function uses, and set a timeout for its requests."
        ) from None
    return results[0]


def _called(label: str, name: str, arguments: Mapping[str, str]) -> object:
    """Call a function.

    The text of an exception may contain a secret, so it is neither shown nor kept as the cause of the error.
    """
    module, _, attribute = name.partition(":")
    function = None
    try:
        function = getattr(import_module(module), attribute)
        if callable(function):
            return function(**arguments)
        failure = OptionError(f"{label} must name a function, and names another object.")
    except OptionError as error:
        failure = error.with_traceback(None)
    except BaseException as error:  # noqa: BLE001 - also SystemExit, which would end the thread without a result
        kind = type(error).__name__
        if function is None:
            failure = OptionError(
                f"{label} names a function that cannot be imported here ({kind}). Install its module for the driver "
                "and every worker, or add its folder to PYTHONPATH."
            )
        else:
            failure = OptionError(
                f"{label}: the function raised {kind}. To see its message, call it in a Python session of the same "
                "machine."
            )
    raise failure
