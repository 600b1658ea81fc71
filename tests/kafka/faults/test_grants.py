"""Grants, where the brokers stumble over a change of them."""

import pytest
from confluent_kafka import KafkaError

from spark_cas.core.grants import Grant, Grants
from spark_cas.log.kafka import KafkaLog
from tests.kafka.faulted import spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, naming

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_of_a_change_whose_commit_went_wrong_in_the_broker_it_is_learnt_whether_it_was_made(proxied, proxied_topic):
    spec = spec_of(proxied.bootstrap, proxied_topic)
    changed = Grants().with_grant(Grant("job", "run", ((0, 1),), "", 1))
    with KafkaLog(spec) as log:
        of_grants = naming(spec.grants_id)
        failed = proxied.proxy.add(Fault.FAIL_RESPONSE, Api.END_TXN, where=of_grants, error=KafkaError.UNKNOWN)
        assert log.put_grants(changed)
        failed.met.wait(0)
        assert log.grants() == changed
        assert not log.put_grants(Grants(1, ())), "it was made from what is no more"
