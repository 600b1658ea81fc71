"""Spark sessions for the programs of this project."""

import os
import sys
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def submitted_session(name: str) -> "SparkSession":
    """The session that spark-submit has set up; one on this machine when the program was started by itself."""
    from pyspark.sql import SparkSession

    _same_python_for_workers()
    return SparkSession.builder.appName(name).getOrCreate()


def local_session(name: str, *, show_log: bool) -> "SparkSession":
    """A session on all cores of this machine, whose log is silent unless it is asked for."""
    from pyspark.sql import SparkSession

    _same_python_for_workers()
    builder = SparkSession.builder.appName(name)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    if show_log:
        return builder.getOrCreate()
    with as_file(files("spark_cas.spark.programs") / "log4j2-off.properties") as settings:
        java_option = f"-Dlog4j2.configurationFile={settings.as_uri()}"
        return builder.config("spark.driver.extraJavaOptions", java_option).getOrCreate()


def _same_python_for_workers() -> None:
    # Spark would take the first python3 on PATH, which need not have this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
