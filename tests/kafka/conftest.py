import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cas.cli import diagnosing
from spark_cas.log.kafka.client import tokens
from tests.kafka.clients import SECONDS, append, create_topic
from tests.kafka.open_transactions import OF_BROKER, Watch
from tests.kafka.proxy.rig import proxied_broker
from tests.kafka.secured import secured_broker
from tests.support import token_provider
from tools.kafka_broker import KafkaBroker, KafkaCluster
from tools.kafka_broker.waiting import wait_until


@pytest.fixture(scope="session")
def cluster(conf):
    """Three shared brokers with replication factor 3 and ``min.insync.replicas=2``.

    A test that stops a broker restarts it. The fixture creates the internal topics while all brokers are up, because
    a broker that is down at that time leads none of their partitions.
    """
    with KafkaCluster(conf, 3) as cluster:
        topic = create_topic(cluster.bootstrap)
        append(cluster.bootstrap, topic, "a")
        wait_until(lambda: _has_coordinator(cluster.bootstrap, topic), SECONDS, lambda: "no coordinator of groups")
        yield cluster


def _has_coordinator(bootstrap, group):
    """Return whether the group has a coordinator.

    During an election, a plain client may send its request to the previous coordinator, which rejects it at once.
    """
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


@pytest.fixture(scope="session")
def sick(conf):
    """A broker whose settings weaken promises, and which applies the retention of a topic at once."""
    settings = {name: value for each in OF_BROKER.values() for name, value in each.items()}
    settings |= {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "200"}
    with KafkaBroker(conf, settings=settings) as broker:
        append(broker.bootstrap, create_topic(broker.bootstrap), "a")  # creates the internal topics
        yield broker


@pytest.fixture
def topic(request, broker):
    """A new topic on the single broker. ``parametrize("topic", [N], indirect=True)`` sets the number of partitions.

    The default is one partition.
    """
    return create_topic(broker.bootstrap, getattr(request, "param", 1))


@pytest.fixture(scope="session")
def _proxied(conf):
    with proxied_broker(conf) as proxied:
        yield proxied


@pytest.fixture
def proxied(_proxied):
    """A second broker with a proxy, which starts each test without rules. Tests share both."""
    _proxied.proxy.clear()
    return _proxied


@pytest.fixture
def proxied_topic(proxied):
    """A new topic with one partition on the broker with the proxy."""
    return create_topic(proxied.direct)


@pytest.fixture(scope="session")
def secured(conf, tmp_path_factory):
    """A separate broker with users, ACLs and a certificate; see `tests.kafka.secured`."""
    with secured_broker(conf, tmp_path_factory.mktemp("secured")) as secured:
        yield secured


@pytest.fixture
def watch(monkeypatch):
    """The time that doctor watches a transaction."""
    result = Watch()
    monkeypatch.setattr(diagnosing, "time", result)
    return result


@pytest.fixture
def provided_tokens(monkeypatch):
    """The tokens that `token_provider.token` returned in a test.

    Idle clients of other tests call another function.
    """
    result = []

    def token():
        result.append(token_provider.jwt(token_provider.LIFETIME_SECONDS))
        return result[-1]

    monkeypatch.setattr(tokens, "_OWN", {})
    monkeypatch.setattr(token_provider, "calls", 0)
    monkeypatch.setattr(token_provider, "token", token)
    return result
