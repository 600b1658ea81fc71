"""What is wrong with how Spark was set up, made out from its errors."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from spark_cas.core.errors import ConditionalLogError, SparkSetupError, error_from_text
from spark_cas.spark.source import ConditionalLogSource
from spark_cas.spark.versions import register

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrameReader, Row, SparkSession

_NO_MODULE = re.compile(r"No module named '[\w.]+'")
_NO_SOURCE = "DATA_SOURCE_NOT_FOUND"
_CRASHED = "Python worker exited unexpectedly"
"""What Spark says, and nothing else, when a worker lacks a module that Spark's own code needs, such as pyarrow."""


_seen: "WeakKeyDictionary[SparkContext, bool]" = WeakKeyDictionary()
"""Contexts whose Python was seen to run spark_cas where Spark plans, and whether where its tasks run as well."""


def saw_it_run(spark: "SparkSession", *, in_tasks: bool) -> None:
    """Note that spark_cas was asked through a session, and answered: a context keeps its Python as long as it is."""
    context = _context_of(spark)
    if context is not None:
        _seen[context] = in_tasks or _seen.get(context, False)


def was_seen_to_run(spark: "SparkSession", *, in_tasks: bool) -> bool:
    """Whether that was noted. Never with Spark Connect, where only the server may see what is asked for."""
    context = _context_of(spark)
    found = None if context is None else _seen.get(context)
    return found is not None and (found or not in_tasks)


def _context_of(spark: "SparkSession") -> "SparkContext | None":
    """None with Spark Connect."""
    return None if getattr(spark, "_jvm", None) is None else spark.sparkContext


def collected(log: "DataFrameReader", spark: "SparkSession") -> "list[Row]":
    """What a read of a log by Spark collects. Raises the error of ours that Spark's tells, where it tells one.

    Spark (4.2) looks for sources in Python once in the life of a driver. Where the worker that looked was ended just
    then, there are none for good: so Spark is told of this one.
    """
    try:
        try:
            return log.load().collect()
        except Exception as error:
            if _NO_SOURCE not in str(error):
                raise
            register(spark, ConditionalLogSource)
            return log.load().collect()
    except Exception as error:
        plain = _error_in(str(error))
        if plain is None:
            raise
        raise plain from None


def _error_in(text: str) -> ConditionalLogError | None:
    found = error_from_text(text)
    if found is not None:
        return found
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
        f"({missing}). Spark takes the first python3 on its PATH. Before the session is made, say "
        f"os.environ['PYSPARK_PYTHON'] = sys.executable; on a cluster, name a Python there that has the package."
    )


def _workers_run_another_python() -> bool:
    first = shutil.which("python3")
    return "PYSPARK_PYTHON" not in os.environ and (first is None or Path(first).parent != Path(sys.executable).parent)
