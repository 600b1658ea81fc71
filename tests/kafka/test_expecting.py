"""Expected offsets of a job on Kafka, where gaps without a record exist and ledgers expire."""

import json
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition

from spark_cas.core.errors import ConflictError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Conflict
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append import checks, placement
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import first_record
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import pin_plan
from tests.kafka.clients import SECONDS, create_topic
from tests.kafka.clients import append as append_as_others_do
from tests.support.loads import crash_after_chunks, rows_of, run_job
from tests.support.writing import JobWriter, append_foreign, claim_of, plan_of, table_of, values_in

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def expecting(*offsets: int) -> ExpectedOffsets:
    return ExpectedOffsets.parse(json.dumps(dict(enumerate(offsets))))


def test_markers_and_aborted_records_are_no_conflict_but_a_later_record_is(broker, topic):
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as log:
        behind = append_foreign(log, 0, "x").range.base_offset + 1
        append_as_others_do(broker.bootstrap, topic, "aborted", commit=False)
        end = log.bounds(0).end_offset
        assert end > behind + 1
        for expected in range(behind, end + 1):
            assert pin_plan(log, f"from-{expected}", expecting(expected)).expected_offsets == (expected,)
        append_as_others_do(broker.bootstrap, topic, "y")
        for expected in (behind, end):
            with pytest.raises(ConflictError) as raised:
                pin_plan(log, f"late-{expected}", expecting(expected))
            assert (raised.value.expected_offset, raised.value.actual_offset) == (expected, log.bounds(0).end_offset)


def test_gap_is_read_again_after_a_trim(broker, topic, monkeypatch):
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as log:
        behind = append_foreign(log, 0, "x").range.base_offset + 1
        append_foreign(log, 0, "y")
        bounds, looks = log.bounds(0), []

        def trimming(readers, at, offsets):
            looks.append(offsets)
            if len(looks) == 1:
                append_foreign(log, 0, "z")
                log.trim(0, log.bounds(0).end_offset)
            return first_record(readers, at, offsets)

        monkeypatch.setattr(checks, "first_record", trimming)
        at = TopicPartition(topic, 0)
        refusal = checks.Checks(log._clients, log._layouts, plan_of(log, "gap"), at).check_offset(
            None, behind, bounds
        )
        assert looks
        left = log.bounds(0)
        assert refusal == Conflict(behind, left.end_offset, left.start_offset)


def test_gap_on_a_compacted_topic_counts_only_after_own_young_rows(broker):
    topic = create_topic(broker.bootstrap, cleanup_policy="compact", delete_retention_ms="86400000")
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as log:
        log.create(1)  # the topic exists; wait until the brokers know it
        behind = append_foreign(log, 0, "x").range.base_offset + 1
        with pytest.raises(ConflictError, match="Nothing was appended"):
            run_job(log, "gap", rows_of(4, 0), expected=json.dumps({0: behind}))
        given = json.dumps({0: log.bounds(0).end_offset})
        crash_after_chunks(log, "own", rows_of(7, 0), 1, expected=given)
        append_as_others_do(broker.bootstrap, topic, "aborted", commit=False)
        assert run_job(log, "own", rows_of(7, 0), expected=given, run="run-2").rows == 7
        assert values_in(log, 0) == ["x", *rows_of(7, 0)[0]]


def test_record_that_compaction_removed_between_two_chunks_is_a_conflict(broker, monkeypatch):
    topic = create_topic(broker.bootstrap, cleanup_policy="compact")
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as log:
        log.create(1)
        writer = JobWriter(log, plan_of(log, "job"))
        writer.must_append("a")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, "deleted", "key", 0)
        assert producer.flush(SECONDS) == 0
        # A reader does not find the record, as after a compaction.
        for module in (checks, placement):
            monkeypatch.setattr(module, "first_record", lambda *_: None)
        assert isinstance(writer.append(table_of("b")), Conflict)
        assert values_in(log, 0) == ["a", "deleted"]


def test_old_job_is_advised_to_check_for_own_rows(broker, topic):
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as log:
        log.record_plan(replace(plan_of(log, "old"), named=(0,), pinned_at_ms=1))
        append_foreign(log, 0, "whose?")
        with pytest.raises(ConflictError, match="Check first whether the new records are those of the job"):
            run_job(log, "old", rows_of(4, 0))


def test_append_during_an_unchecked_claim_is_no_lost_ledger(broker, topic, monkeypatch):
    spec = KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)
    with KafkaLog(spec) as log, KafkaLog(spec) as other:
        plan = pin_plan(log, "job", ExpectedOffsets("none"))
        found = end_offsets.bounds_to_high_watermark

        def meanwhile(*asked):
            monkeypatch.setattr(end_offsets, "bounds_to_high_watermark", found)
            JobWriter(other, plan).must_append("a")
            return found(*asked)

        monkeypatch.setattr(end_offsets, "bounds_to_high_watermark", meanwhile)
        late = JobWriter(log, replace(plan, rejoined=True))
        assert late.claim.progress == other.progress(0, "job")
        append_as_others_do(broker.bootstrap, topic, "aborted", commit=False)
        assert claim_of(log, 0, replace(plan, job="never-begun", rejoined=True, end_offsets=(2,))).progress is None
