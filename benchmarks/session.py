"""The Spark session of both sides of a comparison."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

SMALL_ROWS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""The settings that docs/performance.md recommends for small rows (decision 0013)."""


def start_session(jars: Sequence[Path] = ()) -> SparkSession:
    """Return a local session on all cores, with this Python for its workers, and with these jars."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("benchmarks")
        .master("local[*]")
        # Enough for Spark's sort in memory, so that only the results use the disk.
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(map(str, jars)))
        .config(map={**SMALL_ROWS})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
