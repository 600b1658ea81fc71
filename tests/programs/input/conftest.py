"""Fixtures of the tests of a load's input: a Spark Connect session besides the classic one."""

from typing import Any

import pytest


@pytest.fixture
def connect_session(spark, connect_port, monkeypatch) -> Any:
    """A Spark Connect session. During the test, column functions belong to Connect."""
    from pyspark.sql.connect.session import SparkSession

    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{connect_port}").create()
    yield session
    session.stop()
