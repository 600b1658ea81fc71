"""An object in use by calls of several threads ends with the last of these calls."""

import pytest
from confluent_kafka import KafkaException

from spark_cas.log.kafka.accelerators.array_producer import Lifetime


def test_end_is_immediate_without_a_running_call():
    ended = []
    lifetime = Lifetime(lambda: ended.append(1))
    with lifetime:
        pass
    assert not ended
    lifetime.finish()
    assert ended == [1]


def test_end_waits_for_the_last_running_call():
    ended = []
    lifetime = Lifetime(lambda: ended.append(1))
    with lifetime:
        with lifetime:
            lifetime.finish()
        assert not ended
    assert ended == [1]


def test_no_call_begins_after_the_end_was_requested():
    ended = []
    lifetime = Lifetime(lambda: ended.append(1))
    with lifetime:
        lifetime.finish()
        with pytest.raises(KafkaException), lifetime:
            pytest.fail("it began")
        assert not ended
    with pytest.raises(KafkaException):
        lifetime.finish()
    assert ended == [1]
