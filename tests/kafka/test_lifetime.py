"""An object in use by calls of several threads ends with the last of these calls."""

import pytest
from confluent_kafka import KafkaException

from spark_cas.log.kafka.accelerators.lifetime import Lifetime


def test_the_end_comes_at_once_where_no_call_is_under_way():
    ended = []
    lifetime = Lifetime(lambda: ended.append(1))
    with lifetime:
        pass
    assert not ended
    lifetime.finish()
    assert ended == [1]


def test_the_end_comes_with_the_last_call_that_is_under_way():
    ended = []
    lifetime = Lifetime(lambda: ended.append(1))
    with lifetime:
        with lifetime:
            lifetime.finish()
        assert not ended
    assert ended == [1]


def test_no_call_begins_once_the_end_was_asked_for():
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
