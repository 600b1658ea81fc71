"""What tests of the adapters to Spark share: a Connect session beside the classic one, and logs."""

import pytest

from spark_cas import open_log
from tests.objects.servers import s3
from tests.spark.addresses import EMBEDDED_AND_KAFKA, new_log

__all__ = ["s3"]


@pytest.fixture(scope="module")
def connect(spark, connect_port):
    """A Spark Connect session. While it is there, functions of columns are those of Connect."""
    from pyspark.sql.connect.session import SparkSession

    with pytest.MonkeyPatch.context() as env:
        env.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{connect_port}").create()
        yield session
        session.stop()


@pytest.fixture(params=EMBEDDED_AND_KAFKA)
def address(request, path):
    """A log of two partitions on one of the two backends."""
    return new_log(request, path, 2)


@pytest.fixture
def log(path):
    """A log of two partitions there."""
    with open_log(path) as log:
        log.create(2)
        yield log
