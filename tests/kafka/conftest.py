import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_cas.testing.kafka_broker import KafkaCluster
from tests.kafka.clients import SECONDS, append, create_topic
from tests.kafka.proxy.rig import proxied_broker
from tests.kafka.secured import secured_broker


@pytest.fixture(scope="session")
def cluster(conf):
    """Three brokers, shared: replication factor 3, two in sync. Who breaks one restarts it.

    The internal topics are made while all are there: a node that is gone just then leads none of their partitions.
    """
    with KafkaCluster(conf, 3) as cluster:
        topic = create_topic(cluster.bootstrap)
        append(cluster.bootstrap, topic, "a")
        member = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
        member.committed([TopicPartition(topic, 0)], SECONDS)
        member.close()
        yield cluster


@pytest.fixture
def topic(request, broker):
    """A new topic on the one broker; for N partitions ``parametrize("topic", [N], indirect=True)``, else one."""
    return create_topic(broker.bootstrap, getattr(request, "param", 1))


@pytest.fixture(scope="session")
def _proxied(conf):
    with proxied_broker(conf) as proxied:
        yield proxied


@pytest.fixture
def proxied(_proxied):
    """One broker behind a proxy that has no rules yet, apart from the other broker and shared by those who ask."""
    _proxied.proxy.clear()
    return _proxied


@pytest.fixture
def proxied_topic(proxied):
    """A new topic of one partition on the broker behind the proxy."""
    return create_topic(proxied.direct)


@pytest.fixture(scope="session")
def secured(conf, tmp_path_factory):
    """One broker with users, rights and a certificate, apart from the other broker; see `tests.kafka.secured`."""
    with secured_broker(conf, tmp_path_factory.mktemp("secured")) as secured:
        yield secured
