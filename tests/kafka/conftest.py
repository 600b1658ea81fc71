import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cas.testing.kafka_broker import KafkaCluster
from spark_cas.testing.kafka_broker.waiting import wait_until
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
        wait_until(lambda: _has_coordinator(cluster.bootstrap, topic), SECONDS, lambda: "no coordinator of groups")
        yield cluster


def _has_coordinator(bootstrap, group):
    """False while it is being elected: a plain client is told so at once when it asks the one of a moment ago."""
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        member.committed([TopicPartition(group, 0)], SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.NOT_COORDINATOR:
            raise
        return False
    else:
        return True
    finally:
        member.close()


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
