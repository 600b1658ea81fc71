"""A log through the proxy, and the same log without the proxy."""

import pytest

from spark_cas.log.kafka import KafkaLog
from tests.kafka.faulted import spec_of


@pytest.fixture
def direct(proxied, proxied_topic):
    """The log without the proxy and its faults."""
    with KafkaLog(spec_of(proxied.direct, proxied_topic)) as log:
        yield log


@pytest.fixture
def log(proxied, proxied_topic):
    """The same log through the proxy."""
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log:
        yield log
