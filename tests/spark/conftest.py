"""What tests of the adapters to Spark share: logs."""

import pytest

from spark_cas import open_log
from tests.objects.servers import s3
from tests.spark.addresses import EMBEDDED_AND_KAFKA, new_log

__all__ = ["s3"]


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
