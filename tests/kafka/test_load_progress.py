"""The progress of a load reports that the brokers do not respond, and continues when they do."""

import pytest

from spark_cas import open_log
from spark_cas.log.open import parse_address
from spark_cas.programs.load_progress import LedgerWatch
from tests.support.writing import JobWriter, plan_of
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PATIENCE = 60
"""In seconds: one check may take as long as a request of the client."""


def test_brokers_that_give_no_answer_are_named(broker, topic):
    spec = parse_address(f"kafka://{broker.bootstrap}/{topic}", {"request.timeout.ms": "3000"})
    with open_log(spec) as log:
        JobWriter(log, log.record_plan(plan_of(log, "load-1"))).must_append("a", "b")
    watch = LedgerWatch(spec, "load-1")
    assert (watch.rows(), watch.waiting()) == (2, None)
    broker.freeze()
    try:
        wait_until(lambda: watch.rows() == 2 and watch.waiting() is not None, PATIENCE, lambda: "no wait is reported")
        told = watch.waiting()
    finally:
        broker.thaw()
        broker.node(1).wait_until_alive()
    assert str(told).startswith(f"waiting for the brokers of topic {topic} since ")
    wait_until(lambda: watch.rows() == 2 and watch.waiting() is None, PATIENCE, lambda: "the wait is still reported")
