"""Expected offsets of keys on Kafka: compaction, which removes tombstones, and transactional ids that fence."""

import pytest
from confluent_kafka import Producer

from spark_cas import append_once
from spark_cas.core.claim import _MOST_OWN_RANGES
from spark_cas.core.outcome import Appended, KeyConflict
from spark_cas.core.plan import BY_KEY, Progress
from spark_cas.core.recorded_fields import to_json
from spark_cas.log import clock
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.registry.group_metadata import MAX_METADATA_BYTES, _entry
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, create_topic
from tests.support.writing import TIME_MS, append_foreign, table_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_on_a_compacted_topic_an_old_claim_proves_nothing(broker):
    topic = create_topic(broker.bootstrap, cleanup_policy="compact", delete_retention_ms="86400000")
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as log:
        ordinary = Producer({"bootstrap.servers": broker.bootstrap})
        for key in ("x", "y"):
            ordinary.produce(topic, key, key, partition=0, timestamp=TIME_MS)
        assert ordinary.flush(SECONDS) == 0
        seen, end = 1, log.bounds(0).end_offset
        old = append_once(log, 0, table_of("k"), job="old", expected_offset=seen, compare="key")
        assert old == KeyConflict(0, "k", seen, None, end)
        young = append_once(log, 0, table_of("k"), job="young", expected_offset=end, compare="key")
        assert isinstance(young, Appended), "the expected offset is the end"
        since = young.range.end_offset
        append_foreign(log, 0, "z")
        again = append_once(log, 0, table_of("l"), job="again", expected_offset=since, compare="key")
        assert isinstance(again, Appended), "the record before the expected offset is young"


def test_an_aborted_record_ahead_of_now_is_no_evidence_of_age(broker):
    topic = create_topic(broker.bootstrap, cleanup_policy="compact", delete_retention_ms="86400000")
    ordinary = Producer({"bootstrap.servers": broker.bootstrap})
    ordinary.produce(topic, "x", "x", partition=0, timestamp=TIME_MS)
    assert ordinary.flush(SECONDS) == 0
    aborting = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    aborting.init_transactions(SECONDS)
    aborting.begin_transaction()
    aborting.produce(topic, "y", "y", partition=0, timestamp=clock.now_ms() + 1_800_000)
    assert aborting.flush(SECONDS) == 0
    aborting.abort_transaction(SECONDS)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000)) as log:
        end, marker = log.bounds(0).end_offset, 2
        outcome = append_once(log, 0, table_of("k"), job="job", expected_offset=marker, compare="key")
        assert outcome == KeyConflict(0, "k", marker, None, end)


def test_a_ledger_entry_with_as_many_ranges_as_there_may_be_fits():
    far = 10**12
    ranges = tuple((far + at, far + at + 1) for at in range(_MOST_OWN_RANGES))
    progress = Progress(
        "j" * 100, 10**5, far, "f" * 32, far, far, 10**6, 10**4, True, far, "t" * 60, None, None, ranges
    )
    entry = _entry("t" * 100, "i" * 32, progress)
    assert entry.metadata is not None
    assert len(entry.metadata) < MAX_METADATA_BYTES
    assert BY_KEY not in to_json(progress)
