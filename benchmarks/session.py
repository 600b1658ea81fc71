"""The Spark session that both sides of a comparison run in."""

import os
import sys

from pyspark.sql import SparkSession


def start_session() -> SparkSession:
    """A local session on all cores, with workers of this very Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("benchmarks")
        .master("local[*]")
        # Enough for Spark's sort to stay in memory, so that the disk is used for the results alone.
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
