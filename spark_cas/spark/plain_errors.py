"""What Spark calls: of an error of ours it tells the sentence alone."""

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
"""A variable of the environment: where it is set, errors come with their tracebacks."""

_MASKED = frozenset({"streamReader"})
"""Of these Spark 4.2 raises an error of its own on top, UnboundLocalError: ours is only in the traceback."""

_LOG = logging.getLogger("spark_cas")
_Called = TypeVar("_Called", bound=type)


def called_by_spark(cls: _Called) -> _Called:
    """Make the public methods of a class raise errors of ours so that Spark tells them without a traceback."""
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_") and name not in _MASKED:
            setattr(cls, name, _plain(method))
    return cls


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def reading(*args: Any, **kwargs: Any) -> Iterator[Any]:  # noqa: ANN401 - as the method has it
        with _told_alone():
            yield from method(*args, **kwargs)

    @wraps(method)
    def calling(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method has it
        with _told_alone():
            return method(*args, **kwargs)

    return reading if isgeneratorfunction(method) else calling


@contextmanager
def _told_alone() -> Iterator[None]:
    try:
        yield
    except ConditionalLogError:
        _LOG.debug("what Spark called ended in an error", exc_info=True)
        if TRACEBACK not in os.environ and _within_worker():
            # Spark reads it, for the option spark.sql.execution.pyspark.udf.hideTraceback.enabled, when it sends the
            # error to the JVM; then the worker ends.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _within_worker() -> bool:
    """Whether this process is one of Spark's, and not a driver, whose children would inherit the variable."""
    return str(sys.modules["__main__"].__package__).startswith("pyspark")
