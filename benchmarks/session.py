"""The Spark session that both sides of a comparison run in."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

SMALL_ROWS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""As docs/performance.md advises where rows are small (decision 0044)."""


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
        .config(map={**SMALL_ROWS})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
