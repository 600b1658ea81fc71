"""Detect a wrong setup of Spark, from its errors and from its settings."""

import math
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException

from spark_cas.core.errors import ConditionalLogError, SparkSetupError, wrapped_error
from spark_cas.log.timing import MILLISECONDS_IN
from spark_cas.spark.jvm import jvm_of
from spark_cas.spark.source import ConditionalLogSource
from spark_cas.spark.versions import register

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrameReader, Row, SparkSession

_NO_MODULE = re.compile(r"No module named '[\w.]+'")
_NO_SOURCE = "DATA_SOURCE_NOT_FOUND"
_CRASHED = "Python worker exited unexpectedly"
"""Spark's only message if a worker lacks a module that Spark's own code imports, such as pyarrow."""


_UDF = "spark.sql.execution.pyspark.udf."
"""The prefix of the settings for idle workers. Their defaults are the values of ``spark.python.worker.*``."""
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")


def warn_of_idle_timeout(spark: "SparkSession", wait_seconds: float) -> None:
    """Warn if Spark kills workers that wait ``wait_seconds`` for the log or for other writers."""
    try:
        kills = spark.conf.get(f"{_UDF}killOnIdleTimeout", "false") or ""
        timeout = _DURATION.fullmatch((spark.conf.get(f"{_UDF}idleTimeoutSeconds", "0") or "").strip().lower())
    except PySparkException:
        return  # Databricks serverless does not show each setting
    if timeout is None or kills.strip().lower() != "true":
        return
    timeout_ms = int(timeout[1]) * MILLISECONDS_IN.get(timeout[2] or "s", 0)
    if 0 < timeout_ms <= 1000 * wait_seconds:
        seconds = math.ceil(wait_seconds)
        warnings.warn(
            f"Spark kills a Python worker that sends nothing for {timeout_ms / 1000:g} s, because "
            f"{_UDF}killOnIdleTimeout or spark.python.worker.killOnIdleTimeout is true. A worker of this write can "
            f"wait {seconds} s for the log and for other writers. Set both to false, or set "
            f"{_UDF}idleTimeoutSeconds and spark.python.worker.idleTimeoutSeconds to more than {seconds}.",
            stacklevel=2,
        )


_known: "WeakKeyDictionary[SparkContext, bool]" = WeakKeyDictionary()
"""Contexts whose planner has run spark_cas. The value is whether tasks have run it too."""


def record_run(spark: "SparkSession", *, in_tasks: bool) -> None:
    """Record that the planner of a session has run spark_cas, and with ``in_tasks`` that tasks have run it too.

    A context uses the same Python until it stops. On Spark Connect, this records nothing.
    """
    if jvm_of(spark) is not None:
        _known[spark.sparkContext] = in_tasks or _known.get(spark.sparkContext, False)


def has_run(spark: "SparkSession", *, in_tasks: bool) -> bool:
    """Return whether `record_run` recorded this for the context of a session.

    On Spark Connect the result is False, because only the server may be able to read the log.
    """
    result = None if jvm_of(spark) is None else _known.get(spark.sparkContext)
    return result is not None and (result or not in_tasks)


def collected(log: "DataFrameReader", spark: "SparkSession") -> "list[Row]":
    """Read a log through Spark, and return its rows.

    If Spark's error contains an error of spark_cas, this raises that one. If the workers run a Python without
    spark_cas, it raises SparkSetupError.

    Spark 4.2 searches for Python data sources once per driver. If the worker of that search was killed, Spark finds
    no source until the driver ends. Then this registers the source and retries.
    """
    with own_errors(_error_in):
        try:
            return log.load().collect()
        except Exception as error:
            if _NO_SOURCE not in str(error):
                raise
            register(spark, ConditionalLogSource)
            return log.load().collect()


@contextmanager
def own_errors(find: Callable[[str], ConditionalLogError | None] = wrapped_error) -> Iterator[None]:
    """Raise the error of spark_cas that ``find`` returns for the text of an exception, instead of that exception."""
    try:
        yield
    except ConditionalLogError:
        raise
    except Exception as error:
        plain = find(str(error))
        if plain is None:
            raise
        raise plain from None


def _error_in(text: str) -> ConditionalLogError | None:
    result = wrapped_error(text)
    if result is not None:
        return result
    no_module = _NO_MODULE.search(text)
    if no_module:
        missing = no_module[0]
    elif _NO_SOURCE in text:
        missing = "spark_cas is not there"
    elif _CRASHED in text and _workers_run_another_python():
        missing = "a worker ended as it began; standard error has its last words"
    else:
        return None
    return SparkSetupError(
        f"the Python that Spark runs its workers with is another one than this program's, and cannot run spark_cas "
        f"({missing}). Spark takes the first python3 on its PATH. Before you create the session, set "
        f"os.environ['PYSPARK_PYTHON'] = sys.executable; on a cluster, name a Python there that has the package."
    )


def _workers_run_another_python() -> bool:
    first = shutil.which("python3")
    return "PYSPARK_PYTHON" not in os.environ and (first is None or Path(first).parent != Path(sys.executable).parent)
