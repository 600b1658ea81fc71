"""The results of a preflight, which runs before the first row, on real topics."""

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import LogNotFoundError, RecordTooLargeError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import AT_LEAST_ONCE, IDEMPOTENT
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Preflight
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka import broker_preflight as preflight_module
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.append_rows import append_rows, load_blind
from spark_cas.log.load.planning import pin_plan
from tests.kafka.clients import SECONDS, admin_of, create_topic
from tests.support.loads import TEN, run_job

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

ROOMY = ChunkLimits(max_records=100_000, max_bytes=64_000_000, max_seconds=1_000)


def spec_of(broker, topic: str | None = None, **config: str) -> KafkaSpec:
    """Return the spec of a topic with these settings. Its name is the prefix, so it has a separate registry."""
    name = topic or create_topic(broker.bootstrap, 1, **config)
    return KafkaSpec(broker.bootstrap, name, name)


def look(spec: KafkaSpec) -> Preflight:
    with KafkaLog(spec) as log:
        return log.preflight()


def refusal(spec: KafkaSpec) -> str:
    with pytest.raises(StorageError) as refused:
        look(spec)
    return refused.value.message


def batch(*rows: Mapping[str, object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=RECORDS)


def append(spec: KafkaSpec, records: pa.RecordBatch, limits: ChunkLimits = ROOMY) -> int:
    """Append records as a job, and return the number of appended rows."""
    with KafkaLog(spec) as log:
        plan = pin_plan(log, "job", ExpectedOffsets.parse("end"))
        results = append_rows(log, plan, [(0, records)], task="t", limits=limits, fenced_retry_wait_seconds=1.0)
        return sum(result.progress.rows for result in results)


def noise(size: int) -> bytes:
    """Return bytes that no compression makes smaller."""
    return random.Random(size).randbytes(size)


def test_suitable_topic_has_no_notes(broker):
    found = look(spec_of(broker))
    assert found.notes == ()
    assert found.max_record_bytes is not None


def test_a_topic_that_is_not_there(broker):
    with pytest.raises(LogNotFoundError, match="no-such-topic"):
        look(spec_of(broker, "no-such-topic"))


def test_preflight_leaves_nothing(broker):
    spec = spec_of(broker)
    look(spec)
    with KafkaLog(spec) as log:
        assert log.bounds(0).end_offset == 0
        assert log.progress(0, "preflight") is None
        assert log.jobs() == ()
    assert spec.registry_topic not in admin_of(broker.bootstrap).list_topics(timeout=SECONDS).topics


def test_many_at_once_do_not_disturb_each_other(broker):
    """They share a transactional id, and each one fences the one before."""
    spec = spec_of(broker)
    with ThreadPoolExecutor(6) as pool:
        assert all(found.notes == () for found in pool.map(look, [spec] * 6))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"unclean_leader_election_enable": "true"}, "acknowledged records may be lost"),
        ({"retention_ms": "172800000"}, "older than 2 days are deleted"),
        ({"retention_ms": "1500"}, "older than 1.5 s are deleted"),
        ({"retention_bytes": "12345"}, "no more than 12345 bytes"),
        ({"cleanup_policy": "compact"}, "the topic is compacted"),
        ({"cleanup_policy": "compact,delete", "retention_ms": "86400000"}, "older than 1 days are deleted"),
    ],
)
def test_setting_that_weakens_a_guarantee_is_noted(broker, config, says):
    spec = spec_of(broker, **config)
    notes = look(spec).notes
    assert len([note for note in notes if says in note]) == 1
    assert len(notes) == 1 + config.get("cleanup_policy", "").count(",")


def test_retention_is_no_matter_where_nothing_is_deleted(broker):
    notes = look(spec_of(broker, cleanup_policy="compact", retention_ms="1000", retention_bytes="1000")).notes
    assert len(notes) == 1


def test_too_few_replicas_in_sync_are_rejected(broker):
    said = refusal(spec_of(broker, min_insync_replicas="2"))
    assert "has 1 of 1 replicas in sync, and min.insync.replicas is 2" in said


@pytest.mark.parametrize("compression", ["none", "lz4", "gzip", "zstd", "snappy"])
def test_largest_allowed_record_is_accepted(broker, compression):
    spec = replace(spec_of(broker), client_options=(("compression.type", compression),))
    room = look(replace(spec, client_options=())).max_record_bytes
    assert room is not None
    headers = [{"key": "name", "value": b"v" * 96}] * 10
    key = noise(1000)
    record = {"key": key, "value": noise(room - 1000 - 1000), "headers": headers}
    assert append(spec, batch({"key": b"a", "value": b"b"}, record)) == 2


def test_a_record_larger_than_the_topic_takes_is_named_before_anything_is_appended(broker):
    spec = spec_of(broker, max_message_bytes="20000")
    room = look(spec).max_record_bytes
    rows = batch({"value": b"fits"}, {"value": noise(room or 0)}, {"value": noise((room or 0) + 1)})
    with pytest.raises(RecordTooLargeError, match=rf"row 1 of partition 0 takes \d+ bytes.* at most {room} bytes"):
        append(spec, rows, replace(ROOMY, max_record_bytes=room))
    with KafkaLog(spec) as log:
        assert log.bounds(0).end_offset == 0


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_record_that_the_broker_rejects_is_named(broker, compression):
    """With compression, only the broker can detect it. It accepts the larger row before, whose batch is smaller."""
    made = spec_of(broker, max_message_bytes="20000")
    spec = replace(made, client_options=(("compression.type", compression),))
    before = [{"value": b"fits"}, *([{"value": bytes(90_000)}] if compression == "zstd" else [])]
    with pytest.raises(RecordTooLargeError) as rejected:
        append(spec, batch(*before, {"key": b"N1", "value": noise(50_001)}, {"value": b"last"}))
    assert f"row {len(before)} of partition 0 (key N1) " in rejected.value.message
    assert f"max.message.bytes of topic {spec.topic} is 20000" in rejected.value.message
    with KafkaLog(replace(spec, open_transaction_wait_ms=5_000)) as log:
        log.bounds(0)  # waits for open transactions, of which none may be left


@pytest.mark.parametrize("guarantee", [IDEMPOTENT, AT_LEAST_ONCE])
def test_a_record_that_the_broker_rejects_is_named_without_transactions(broker, guarantee):
    spec = spec_of(broker, max_message_bytes="20000")
    rows = batch({"value": b"fits"}, {"value": noise(50_001)})
    with KafkaLog(spec) as log, pytest.raises(RecordTooLargeError) as raised:
        load_blind(log, log.layout(), [(0, rows)], task="run/0", limits=ROOMY, guarantee=guarantee)
    assert (raised.value.partition, raised.value.row) == (0, 1)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_record_that_fits_after_compression_is_accepted(broker, compression):
    spec = replace(spec_of(broker, max_message_bytes="20000"), client_options=(("compression.type", compression),))
    found = look(spec)
    assert found.max_record_bytes is None
    assert append(spec, batch({"value": b"a"}, {"value": bytes(100_000)}, {"value": b"b"})) == 3


def test_a_topic_that_stores_records_uncompressed_limits_them_before_compression(broker):
    spec = spec_of(broker, max_message_bytes="20000", compression_type="uncompressed")
    found = look(replace(spec, client_options=(("compression.type", "zstd"),)))
    assert found.max_record_bytes == look(spec).max_record_bytes
    assert found.max_record_bytes is not None


def test_the_largest_request_of_the_producer_limits_records_before_compression(broker):
    options = (("compression.type", "zstd"), ("message.max.bytes", "5000"))
    spec = replace(spec_of(broker), client_options=options)
    found = look(spec)
    assert found.max_record_bytes == 5000
    with pytest.raises(RecordTooLargeError, match=r"row 1 of partition 0 .*kafka\.max\.request\.size"):
        append(spec, batch({"value": b"a"}, {"value": bytes(6000)}))


def test_record_larger_than_the_client_default_is_accepted(broker):
    spec = spec_of(broker, max_message_bytes="5000000")
    assert append(spec, batch({"value": noise(4_000_000)})) == 1


def test_small_records_are_not_put_into_batches_that_the_topic_does_not_take(broker):
    spec = spec_of(broker, max_message_bytes="10000")
    assert append(spec, batch(*[{"value": noise(1000)}] * 200)) == 200


def test_a_transaction_timeout_that_the_brokers_do_not_allow(broker):
    said = refusal(replace(spec_of(broker), transaction_timeout_ms=900_001))
    assert "the transaction timeout is above the broker's transaction.max.timeout.ms" in said


def registry_of(broker, spec: KafkaSpec, partitions: int = 1, **config: str) -> None:
    """Create the topic of jobs, as an administrator does."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = admin_of(broker.bootstrap)
    made = admin.create_topics([NewTopic(spec.registry_topic, partitions, config=settings)])
    made[spec.registry_topic].result(SECONDS)


@pytest.mark.parametrize("config", [{"retention_ms": "1000000"}, {"retention_bytes": "1000000"}])
def test_a_registry_that_forgets_is_refused(broker, config):
    spec = spec_of(broker)
    registry_of(broker, spec, **config)
    said = refusal(spec)
    assert f"the registry topic {spec.registry_topic} deletes old records" in said
    assert f"--entity-name {spec.registry_topic} --add-config cleanup.policy=compact" in said


@pytest.mark.parametrize(
    ("partitions", "config"),
    [(1, {"cleanup_policy": "delete"}), (3, {"cleanup_policy": "compact", "retention_ms": "1000"})],
)
def test_a_registry_that_keeps_all_is_good_however_it_was_made(broker, partitions, config):
    spec = spec_of(broker)
    registry_of(broker, spec, partitions, **config)
    assert look(spec).notes == ()
    with KafkaLog(spec) as log:
        run_job(log, "job", TEN)
        assert log.jobs() == ("job",)


def test_a_registry_that_may_lose_a_plan_is_a_note(broker):
    spec = spec_of(broker)
    registry_of(broker, spec, cleanup_policy="compact", unclean_leader_election_enable="true")
    (note,) = look(spec).notes
    assert spec.registry_topic in note


def test_settings_of_the_brokers_that_shorten_a_promise_are_notes(secured):
    topic = create_topic(secured.open)
    resume, verify = look(KafkaSpec(secured.open, topic, topic)).notes
    assert "can be resumed only for 1 days" in resume
    assert "transaction.partition.verification.enable is not true" in verify


def test_brokers_that_know_no_ids_of_topics_are_too_old():
    """This is Kafka 2.7 and earlier, which the test does not run."""
    with pytest.raises(StorageError, match=r"older than Kafka 2\.8"):
        preflight_module._require_id(SimpleNamespace(name="flights", topic_id="A" * 22))  # type: ignore[arg-type]
