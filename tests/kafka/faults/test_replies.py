"""Lost and late requests and responses of each kind: each row is stored once, and each outcome is true."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_cas.core.errors import StorageError
from spark_cas.core.outcome import Appended, Outcome
from spark_cas.log.kafka import KafkaLog
from tests.kafka.clients import SECONDS, committed_values, create_topic
from tests.kafka.faulted import (
    APIS,
    LOST,
    all_at_once,
    by_writer,
    planned_writer,
    require_truth,
    run_as_spark_does,
    spec_of,
)
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault
from tests.long import full
from tests.support.loads import rows_of
from tests.support.writing import table_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LATE = [Fault.HOLD_REQUEST, Fault.HOLD_RESPONSE]


def by_name(each):
    return each.name


@pytest.mark.parametrize("fault", [LOST[0], *full(*LOST[1:], *LATE)], ids=by_name)
def test_a_load_has_every_row_once_and_in_order(proxied, fault):
    rows = rows_of(10, 0)

    def load(api):
        topic = create_topic(proxied.direct)
        spec = spec_of(proxied.bootstrap, topic)
        nth = 1 if api == Api.INIT_PRODUCER_ID else 2
        rule = proxied.proxy.add(fault, api, nth=nth, where=by_writer(spec))
        next_one = proxied.proxy.add(Fault.WATCH, api, nth=nth + 1, where=by_writer(spec))
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(run_as_spark_does, spec, rows)
            next_one.answered.wait(SECONDS)
            rule.release()
            running.result(2 * SECONDS)
        rule.reached.wait(0)
        return committed_values(proxied.direct, topic)

    assert dict(zip(APIS, all_at_once(load, APIS), strict=True)) == dict.fromkeys(APIS, rows[0])


def outcome_under(proxied, fault, api, times) -> tuple[str, Outcome | StorageError]:
    """Return a topic, and the outcome of an append whose first or all requests of an API meet a fault."""
    topic = create_topic(proxied.direct)
    spec = spec_of(proxied.bootstrap, topic)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append(*"ab")
        # Close the pooled producers, so that the append itself has to send InitProducerId.
        log._producers.close()
        rule = proxied.proxy.add(fault, api, where=by_writer(spec), times=times)
        outcome: Outcome | StorageError
        try:
            outcome = job.append(table_of("xyz"))
        except StorageError as error:
            outcome = error
        rule.reached.wait(0)
    return topic, outcome


def test_commit_without_a_reply_is_resolved_by_the_ledger(proxied):
    topic, outcome = outcome_under(proxied, Fault.DROP_RESPONSE, Api.END_TXN, None)
    assert isinstance(outcome, Appended)
    assert outcome.resolved
    assert committed_values(proxied.direct, topic) == [*"abxyz"]


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        *((fault, 1) for fault in LOST),
        pytest.param(Fault.DROP_RESPONSE, None, marks=pytest.mark.full),
        # Each of these takes the whole retry timeout.
        pytest.param(Fault.RESET_BEFORE_REQUEST, None, marks=pytest.mark.full),
        pytest.param(Fault.RESET_BEFORE_RESPONSE, None, marks=pytest.mark.full),
    ],
    ids=lambda each: each.name if isinstance(each, Fault) else "once" if each else "always",
)
def test_outcome_matches_the_visible_records(proxied, fault, times):
    def check(found):
        topic, outcome = found
        require_truth(spec_of(proxied.direct, topic), outcome, "ab", "xyz")

    done = all_at_once(lambda api: outcome_under(proxied, fault, api, times), APIS)
    proxied.proxy.clear()
    all_at_once(check, done)
    outcomes = [found for _, found in done]
    if times == 1:
        assert all(isinstance(found, Appended) for found in outcomes), outcomes
        return
    assert all(isinstance(found, StorageError) for found in outcomes[:-1]), outcomes
    committed = outcomes[-1]
    if fault is Fault.RESET_BEFORE_REQUEST:
        # The ledger showed each time that the chunk was not committed.
        assert isinstance(committed, StorageError), committed
    else:
        assert isinstance(committed, Appended), committed
        assert committed.resolved
