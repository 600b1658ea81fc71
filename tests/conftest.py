"""What all tests share: how hard property tests try (HYPOTHESIS_PROFILE: default, ci, nightly), and a broker."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from spark_cas.testing.kafka_broker import KafkaBroker

# No deadline anywhere: the machine's load is no property of the code. Time is bounded per test.
settings.register_profile("default", max_examples=25, deadline=None)
settings.register_profile("ci", max_examples=50, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=5000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def conf():
    """The settings of the brokers, for tests that start one of their own."""
    return Path(__file__).parents[1] / "conf" / "kafka"


@pytest.fixture(scope="session")
def broker(conf):
    """One Kafka broker, shared: who breaks it restarts it."""
    with KafkaBroker(conf) as broker:
        yield broker


@pytest.fixture(scope="module")
def _own_broker(conf):
    with KafkaBroker(conf) as broker:
        yield broker


@pytest.fixture
def own_broker(_own_broker):
    """A broker of the module's own, to stop and start, once it is alive again after the test before."""
    _own_broker.node(1).wait_until_alive()
    return _own_broker
