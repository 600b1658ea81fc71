"""Fixtures of the tests of the Spark adapter: logs."""

import pytest

from spark_cas import open_log
from tests.objects.servers import s3
from tests.spark.addresses import EMBEDDED_AND_KAFKA, new_log

__all__ = ["s3"]


@pytest.fixture(params=EMBEDDED_AND_KAFKA)
def address(request, path):
    """The address of a log with two partitions, on each backend."""
    return new_log(request, path, 2)


@pytest.fixture
def log(path):
    """An open log with two partitions in a directory."""
    with open_log(path) as log:
        log.create(2)
        yield log
