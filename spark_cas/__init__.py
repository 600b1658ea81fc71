"""Conditional publish for Spark: DataFrames appended to a log exactly once, at the expected offset."""

from spark_cas.log.open import open_log

__all__ = ["open_log"]
