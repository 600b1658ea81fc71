"""The Spark session that both sides of a comparison run in."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession


def start_session(jars: Sequence[Path] = ()) -> SparkSession:
    """A local session on all cores, with workers of this very Python and with these jars."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("benchmarks")
        .master("local[*]")
        # Enough for Spark's sort to stay in memory, so that the disk is used for the results alone.
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(map(str, jars)))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
