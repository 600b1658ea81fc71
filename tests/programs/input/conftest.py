"""What tests of the input of a load share: a Spark Connect session beside the classic one."""

from typing import Any

import pytest


@pytest.fixture
def connect_session(spark, connect_port, monkeypatch) -> Any:
    """A Spark Connect session. During the test, functions of columns are those of Connect."""
    from pyspark.sql.connect.session import SparkSession

    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{connect_port}").create()
    yield session
    session.stop()
