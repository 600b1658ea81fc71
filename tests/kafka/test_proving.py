"""An append without records proves that a claim is the newest, before the next claimant has appended anything."""

import pytest

from spark_cas.core.chunks import Chunk
from spark_cas.core.outcome import Appended, Fenced
from spark_cas.core.records import RECORDS
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.support.writing import JobWriter, plan_of, without_end

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def proof(writer):
    """Return the chunk that changes nothing."""
    held = writer.claim.progress
    nothing = RECORDS.empty_table()
    return Chunk(nothing, held.rows, held.digest, complete=False, task=held.task, time_ms=held.committed_at_ms)


def test_claim_is_verified_until_another_replaces_it(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic)
    with KafkaLog(spec) as log, KafkaLog(spec) as other:
        writer = JobWriter(log, plan_of(log, "first"))
        writer.must_append("1")
        end, held = log.bounds(0), without_end(log.progress(0, "first"))
        for _ in range(2):
            assert isinstance(log.append(writer.claim, proof(writer)), Appended)
        assert (log.bounds(0), without_end(log.progress(0, "first"))) == (end, held)
        writer.must_append("2")
        rival = JobWriter(other, plan_of(other, "second"))
        assert log.append(writer.claim, proof(writer)) == Fenced(None)
        rival.must_append("3")
        assert isinstance(other.append(rival.claim, proof(rival)), Appended)


@pytest.mark.parametrize("is_aborted", [True, False])
def test_no_claim_is_shown_where_the_name_has_another_topic(broker, topic, monkeypatch, is_aborted):
    with KafkaLog(KafkaSpec(broker.bootstrap, topic)) as log:
        writer = JobWriter(log, plan_of(log, "first"))
        writer.must_append("1")
        monkeypatch.setattr(TransactionalProducer, "describe", lambda _: ("another", 1))
        if not is_aborted:
            monkeypatch.setattr(TransactionalProducer, "abort", lambda _: False)
        assert log.append(writer.claim, proof(writer)) == Fenced(None)
