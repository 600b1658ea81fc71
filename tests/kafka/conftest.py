from pathlib import Path

import pytest

from spark_cas.testing.kafka_broker import KafkaBroker, KafkaCluster
from tests.kafka.clients import create_topic

CONF = Path(__file__).parents[2] / "conf" / "kafka"


@pytest.fixture(scope="session")
def conf():
    """The settings of the brokers, for tests that start one of their own."""
    return CONF


@pytest.fixture(scope="session")
def broker():
    """One broker, shared: who breaks it restarts it."""
    with KafkaBroker(CONF) as broker:
        yield broker


@pytest.fixture(scope="session")
def cluster():
    """Three brokers, shared: replication factor 3, two in sync. Who breaks one restarts it."""
    with KafkaCluster(CONF, 3) as cluster:
        yield cluster


@pytest.fixture
def topic(request, broker):
    """A new topic on the one broker; for N partitions ``parametrize("topic", [N], indirect=True)``, else one."""
    return create_topic(broker.bootstrap, getattr(request, "param", 1))
