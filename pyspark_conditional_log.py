"""Spark lists the modules whose names begin with ``pyspark_`` and takes `DefaultSource` from each."""

from spark_cas.spark.source import ConditionalLogSource as DefaultSource

__all__ = ["DefaultSource"]
