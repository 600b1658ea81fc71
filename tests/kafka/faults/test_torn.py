"""Requests that arrive late, within the next transaction.

The broker rejects them if the writer uses a new producer instance, and applies them if it reuses the instance. Each
case also runs with a build that always reuses its instances, to show that the test can detect the fault.
"""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.outcome import Appended
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.clients import TransactionalProducer
from tests.kafka.clients import SECONDS, committed_values
from tests.kafka.faulted import by_writer, planned_writer, progress_now, spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault
from tests.kafka.proxy.tearing import tear
from tests.support.writing import table_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

FIRST = ["a", "b"]
SECOND = [f"{at}".rjust(100) for at in range(20_000)]
"""Enough values for two requests."""


@pytest.fixture
def _blind(monkeypatch):
    monkeypatch.setattr(TransactionalProducer, "proven_clean", lambda _self: True)


@pytest.fixture
def second() -> pa.Table:
    return table_of(SECOND)


def torn(proxied, topic, second):
    """Append twice, so that the first commit arrives in the middle of the second chunk."""
    spec = spec_of(proxied.bootstrap, topic)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        outcomes = []
        code = tear(
            proxied.proxy,
            lambda: outcomes.append(job.append(table_of(FIRST))),
            lambda: outcomes.append(job.append(second)),
            where=by_writer(spec),
        )
    return code, outcomes


def test_a_commit_that_arrives_late_does_not_tear_the_next_chunk(proxied, proxied_topic, second):
    code, outcomes = torn(proxied, proxied_topic, second)
    assert code == KafkaError.INVALID_PRODUCER_EPOCH
    assert [type(each) for each in outcomes] == [Appended, Appended]
    assert committed_values(proxied.direct, proxied_topic) == [*FIRST, *SECOND]
    progress = progress_now(spec_of(proxied.direct, proxied_topic))
    assert progress is not None
    assert progress.rows == len(FIRST) + len(SECOND)


@pytest.mark.full
@pytest.mark.usefixtures("_blind")
def test_a_build_that_reuses_its_instances_is_torn(proxied, proxied_topic, second):
    try:
        code, outcomes = torn(proxied, proxied_topic, second)
    except ConditionalLogError:
        code, outcomes = 0, []
    assert code == KafkaError.NO_ERROR
    visible = committed_values(proxied.direct, proxied_topic)
    progress = progress_now(spec_of(proxied.direct, proxied_topic))
    assert progress is not None
    assert 0 < len(visible) - len(FIRST) < len(SECOND) or progress.rows != len(visible), outcomes


def turned_back(proxied, topic):
    """Append twice, so that the ledger entry of the first chunk arrives last. Return the row count in the ledger."""
    spec = spec_of(proxied.bootstrap, topic)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        late = proxied.proxy.add(Fault.HOLD_REQUEST, Api.TXN_OFFSET_COMMIT, where=by_writer(spec))
        job.must_append(*FIRST)
        late.reached.wait(0)
        ending = proxied.proxy.add(Fault.HOLD_REQUEST, Api.END_TXN, where=by_writer(spec))
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(job.must_append, *"xyz")
            ending.reached.wait(SECONDS)
            late.release()
            late.answered.wait(SECONDS)
            ending.release()
            running.result(SECONDS)
    assert committed_values(proxied.direct, topic) == [*FIRST, *"xyz"]
    progress = progress_now(spec_of(proxied.direct, topic))
    assert progress is not None
    return progress.rows


def test_a_late_ledger_entry_does_not_turn_the_ledger_back(proxied, proxied_topic):
    assert turned_back(proxied, proxied_topic) == 5


@pytest.mark.full
@pytest.mark.usefixtures("_blind")
def test_late_ledger_entry_reverts_the_ledger_of_a_defective_build(proxied, proxied_topic):
    assert turned_back(proxied, proxied_topic) == 2
