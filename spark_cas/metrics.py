"""Metrics of streaming queries: ``spark.streams.addListener(spark_cas.metrics.QueryMetrics("otel"))``."""

from spark_cas.spark.supported import require_pyspark

with require_pyspark():
    from spark_cas.spark.query_metrics import QueryMetrics

__all__ = ["QueryMetrics"]
