"""A log behind the proxy, and past it."""

import pytest

from spark_cas.log.kafka import KafkaLog
from tests.kafka.faulted import spec_of


@pytest.fixture
def direct(proxied, proxied_topic):
    """The log past all faults."""
    with KafkaLog(spec_of(proxied.direct, proxied_topic)) as log:
        yield log


@pytest.fixture
def log(proxied, proxied_topic):
    """The same, by clients that soon give up waiting."""
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log:
        yield log
