"""Whether this process is a worker of Spark, and errors of spark_cas that Spark reports without tracebacks."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, TypeVar

from spark_cas.core.errors import ConditionalLogError

TRACEBACK = "SPARK_CAS_TRACEBACK"
"""Environment variable. If it is set, Spark reports these errors with tracebacks."""

_MASKED = frozenset({"streamReader"})
"""Methods that stay as they are: if one raises, Spark 4.2 raises UnboundLocalError with ours in the traceback."""

_LOG = logging.getLogger("spark_cas")
_Called = TypeVar("_Called", bound=type)


def called_by_spark(cls: _Called) -> _Called:
    """Make the public methods of a class raise errors of spark_cas that Spark reports without tracebacks."""
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_") and name not in _MASKED:
            setattr(cls, name, _plain(method))
    return cls


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def reading(*args: Any, **kwargs: Any) -> Iterator[Any]:  # noqa: ANN401 - as in the method
        with _only_message():
            yield from method(*args, **kwargs)

    @wraps(method)
    def calling(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as in the method
        with _only_message():
            return method(*args, **kwargs)

    return reading if isgeneratorfunction(method) else calling


@contextmanager
def _only_message() -> Iterator[None]:
    try:
        yield
    except ConditionalLogError:
        _LOG.debug("a call from Spark raised an error", exc_info=True)
        if TRACEBACK not in os.environ and in_worker():
            # In a driver the variable must not be set, because child processes would inherit it.
            # Spark sets it for spark.sql.execution.pyspark.udf.hideTraceback.enabled, and reads it when it sends the
            # error to the JVM. After that the worker exits.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def in_worker() -> bool:
    """Return whether Spark started this process to run Python for its JVM."""
    return run_as().startswith("pyspark.")


def run_as() -> str:
    """Return the module that this process runs, or an empty text."""
    run = sys.modules["__main__"].__spec__
    return "" if run is None else run.name
