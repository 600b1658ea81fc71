"""One Spark application for all tests: a classic session, and a Spark Connect server in the same JVM."""

import os
import socket
import sys
from pathlib import Path

import pytest

from spark_cas import open_log
from tests.objects.servers import s3
from tests.spark.addresses import EMBEDDED_AND_KAFKA, new_log

__all__ = ["s3"]

ROOT = Path(__file__).parents[2]
QUIET = Path(__file__).with_name("log4j2.properties")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def connect_port():
    return free_port()


@pytest.fixture(scope="session")
def spark(connect_port, tmp_path_factory):
    """Two threads, four attempts per task: plain local mode never retries."""
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as env:
        env.setenv("PYSPARK_PYTHON", sys.executable)
        env.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        env.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{QUIET} -Dderby.system.home={scratch}",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "Europe/Berlin",
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": str(connect_port),
        }
        builder = SparkSession.builder.master("local[2,4]").appName("spark_cas tests")
        session = builder.config(map=settings).getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def connect(spark, connect_port):
    """A Spark Connect session. While it is there, functions of columns are those of Connect."""
    from pyspark.sql.connect.session import SparkSession

    with pytest.MonkeyPatch.context() as env:
        env.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{connect_port}").create()
        yield session
        session.stop()


@pytest.fixture
def path(tmp_path):
    """Where a log is, or will be."""
    return str(tmp_path / "flights")


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
