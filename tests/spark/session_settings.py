"""Temporary settings of a Spark session."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to a session within the block, and restore the previous values after it."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, had in before.items():
            spark.conf.unset(name) if had is None else spark.conf.set(name, had)
