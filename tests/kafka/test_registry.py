"""The registry topics: reads, concurrent writers, and records that are not entries."""

import logging
import os
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from spark_cas.core.claim import Claim
from spark_cas.core.errors import FormatError, RecordTooLargeError
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import Completion, PartitionResult, Plan, Progress
from spark_cas.core.recorded_fields import to_json
from spark_cas.core.records import records_of_bytes
from spark_cas.log.expanding import expand_log
from spark_cas.log.jobs import forget_job
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.sending import produce
from spark_cas.log.kafka.registry import compacted_map
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.contract.base import at_once
from tests.kafka.clients import SECONDS, admin_of, committed_values, create_topic
from tests.kafka.faulted import spec_of
from tests.kafka.proxy.frames import Api
from tests.support.loads import TEN, crash_after_chunks, run_job
from tests.support.writing import JobWriter, plan_of, table_of, values_in

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

DRIVERS = 16
DRIVERS_SECONDS = 90
JOBS = 10_000
CLAIM_BYTES = 20_000


@pytest.fixture
def spec(broker) -> KafkaSpec:
    return spec_of(broker.bootstrap, create_topic(broker.bootstrap))


def make_topic(address: str, name: str, partitions: int = 1) -> None:
    admin = admin_of(address)  # its futures fail after it is garbage-collected
    made = admin.create_topics([NewTopic(name, partitions, config={"cleanup.policy": "compact"})])
    made[name].result(SECONDS)


def record(
    address: str, topic: str, *entries: tuple[str | bytes | None, str | bytes | None], partitions: int = 1
) -> None:
    """Append entries to each of the first partitions with an ordinary producer."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "queue.buffering.max.messages": 0})
    for key, value in entries:
        for partition in range(partitions):
            producer.produce(topic, value, key, partition)
    assert producer.flush(SECONDS) == 0


def key_of(spec: KafkaSpec, kind: str, *rest: object) -> str:
    return "/".join(map(str, (spec.topic, kind, *rest)))


def completion_of(plan: Plan, partitions: int) -> Completion:
    """Return the completion of a job that filled so many partitions, with distinct values for each of them."""
    results = [
        PartitionResult(
            Progress(
                plan.job,
                partition,
                rows=1000 + partition,
                digest=os.urandom(16).hex(),
                base_offset=10**9 + partition,
                end_offset=10**9 + 1001 + partition,
                chunks=3,
                layout_epoch=partitions,
                complete=True,
                committed_at_ms=1_795_000_000_000 + partition,
                task=f"{os.urandom(16).hex()}/{partition}",
            ),
            resumed_rows=0,
            resolved=0,
        )
        for partition in range(partitions)
    ]
    return Completion(plan.job, plan.log_id, plan.layout_epoch, tuple(results), 1)


def test_reads_of_a_claim_do_not_grow_with_past_jobs(proxied):
    spec = spec_of(proxied.bootstrap, create_topic(proxied.direct))
    with KafkaLog(replace(spec, bootstrap_servers=proxied.direct)) as log:
        plan = log.record_plan(plan_of(log, "job"))
        entries = [
            (key_of(spec, kind, job), to_json(value))
            for job in (f"job-{number}" for number in range(JOBS))
            for kind, value in (
                ("plan", replace(plan, job=job)),
                ("completion", Completion(job, plan.log_id, 1, (), 1)),
            )
        ]
        # All are in one partition. A claim must not read the entries of jobs in any partition.
        record(proxied.direct, spec.registry_topic, *entries)
        assert len(log.jobs()) == JOBS + 1
    traffic = proxied.proxy.traffic
    traffic.clear()
    with KafkaLog(spec) as log:
        assert isinstance(log.claim(0, plan), Claim)
    assert 0 < traffic.response_bytes[Api.FETCH] < CLAIM_BYTES


def test_many_drivers_at_once_record_their_plans_within_a_bounded_time(spec):
    def plan_a_job(number: int) -> float:
        began = time.monotonic()
        with KafkaLog(spec) as log:
            mine = plan_of(log, f"job-{number}")
            assert log.record_plan(mine) == mine
        return time.monotonic() - began

    took = at_once(*(partial(plan_a_job, number) for number in range(DRIVERS)))
    assert max(took) < DRIVERS_SECONDS
    with KafkaLog(spec) as log:
        assert len(log.jobs()) == DRIVERS


def test_of_many_drivers_that_record_the_same_job_at_once_one_wins_for_all(spec):
    def plan_the_job(_: int) -> Plan:
        with KafkaLog(spec) as log:
            mine = replace(plan_of(log, "job"), pinned_by=os.urandom(8).hex())
            return log.record_plan(mine)

    for _ in range(3):
        with ThreadPoolExecutor(8) as threads:
            plans = set(threads.map(plan_the_job, range(8)))
        with KafkaLog(spec) as log:
            assert plans == {log.plan("job")}


def test_second_entry_of_a_key_is_never_committed(spec, monkeypatch):
    make_topic(spec.bootstrap_servers, spec.registry_topic)
    with KafkaLog(spec) as quick, KafkaLog(spec) as slow:
        first, second = (replace(plan_of(log, "job"), pinned_at_ms=number) for number, log in ((1, quick), (2, slow)))

        def after_the_other(producer, at, *given):
            # Before its plan, a driver records the layout in another topic.
            if at.topic == spec.registry_topic:
                monkeypatch.undo()
                assert quick.record_plan(first) == first
            return produce(producer, at, *given)

        monkeypatch.setattr(compacted_map, "produce", after_the_other)
        assert slow.record_plan(second) == first
    with KafkaLog(spec) as log:  # reads up to a barrier, because a commit returns before readers see it
        assert log.plan("job") == first
    assert committed_values(spec.bootstrap_servers, spec.registry_topic) == [to_json(first)]


def test_a_completion_of_any_number_of_partitions_is_recorded(spec):
    with KafkaLog(spec) as log:
        plan = log.record_plan(plan_of(log, "job"))
        completion = completion_of(plan, 5_000)
        assert len(to_json(completion)) > 2_000_000
        assert log.record_completion(completion) == completion
    with KafkaLog(spec) as log:
        assert log.completion("job") == completion
        assert log.record_completion(completion_of(plan, 1)) == completion


@pytest.mark.parametrize("partitions", [1, 3])
def test_jobs_are_read_for_any_number_of_registry_partitions(spec, partitions):
    make_topic(spec.bootstrap_servers, spec.registry_topic, partitions)
    names = tuple(sorted(f"job-{number}" for number in range(5)))
    with KafkaLog(spec) as log:
        for name in names:
            log.record_plan(plan_of(log, name))
    with KafkaLog(spec) as log:
        assert log.jobs() == names
        assert all(log.plan(name) is not None for name in names)


def test_records_that_are_no_entries_are_named_and_passed_over(spec, caplog):
    with KafkaLog(spec) as log:
        first = log.record_plan(plan_of(log, "job"))
    foreign: list[tuple[bytes | None, bytes | None]] = [
        (b"\xff\xfe", b"a key that is no text"),
        (b"a key without a kind", b"{}"),
        (key_of(spec, "verdict", "job").encode(), b"a kind of a newer version"),
        (key_of(spec, "plan", "gone").encode(), None),
    ]
    for topic in (spec.registry_topic, spec.layouts_topic):
        record(spec.bootstrap_servers, topic, *foreign)
    with caplog.at_level(logging.WARNING, "spark_cas"), KafkaLog(spec) as log:
        assert log.jobs() == ("job",)
        assert log.plan("job") == first
        assert isinstance(log.claim(0, first), Claim)
        run_job(log, "other", TEN)
    said = [each.getMessage() for each in caplog.records if "is no entry of the registry" in each.getMessage()]
    assert len([each for each in said if f"of topic {spec.layouts_topic} " in each]) == 3
    assert all("the record at offset " in each for each in said)


def test_a_record_without_a_key_is_passed_over_where_the_topic_takes_one(broker):
    spec = spec_of(broker.bootstrap, create_topic(broker.bootstrap))
    for name in (spec.registry_topic, spec.layouts_topic):
        admin = admin_of(broker.bootstrap)
        admin.create_topics([NewTopic(name, 1, config={"retention.ms": "-1"})])[name].result(SECONDS)
        record(broker.bootstrap, name, (None, b"no key"), (None, None))
    with KafkaLog(spec) as log:
        assert run_job(log, "job", TEN).rows == 10


def test_unreadable_entry_stops_only_its_job(spec):
    with KafkaLog(spec) as log:
        log.record_plan(plan_of(log, "job"))
    # In all partitions, including the one of the job that the key names.
    record(spec.bootstrap_servers, spec.registry_topic, (key_of(spec, "plan", "damaged"), b"\xff"), partitions=16)
    with KafkaLog(spec) as log:
        assert log.plan("job") is not None
        run_job(log, "other", TEN)
        with pytest.raises(FormatError, match=r"damaged' at offset \d+ of partition \d+ of topic"):
            log.plan("damaged")


def test_an_entry_that_inflates_stops_only_its_job_within_bounded_memory(spec, monkeypatch):
    most = 4 * 1024 * 1024
    monkeypatch.setattr(compacted_map, "MOST_TEXT_BYTES", most)
    with KafkaLog(spec) as log:
        log.record_plan(plan_of(log, "job"))
    bomb = zlib.compress(bytes(64 * most))
    record(spec.bootstrap_servers, spec.registry_topic, (key_of(spec, "plan", "bomb"), bomb), partitions=16)
    with KafkaLog(spec) as log:
        assert log.plan("job") is not None
        tracemalloc.start()
        with pytest.raises(FormatError, match=r"bomb' at offset \d+ of partition \d+ of topic"):
            log.plan("bomb")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * most


def test_an_entry_that_readers_reject_is_not_written(spec, monkeypatch):
    monkeypatch.setattr(compacted_map, "MOST_TEXT_BYTES", 60)
    with KafkaLog(spec) as log:
        with pytest.raises(RecordTooLargeError, match="plan/job"):
            log.record_plan(plan_of(log, "job"))
        assert log.plan("job") is None


@pytest.mark.parametrize("pieces", ["0" * 9 + "9" * 12, "9" * 5000])
def test_an_entry_in_more_pieces_than_it_has_is_an_error_and_can_be_removed(spec, pieces):
    with KafkaLog(spec) as log:
        log.record_plan(plan_of(log, "job"))
        forged = (key_of(spec, "cancelled", "run"), f'{{"pieces":{pieces}}}')
        first_piece = (key_of(spec, "piece", "cancelled", "run", 0), "{")
        record(spec.bootstrap_servers, spec.layouts_topic, forged, first_piece)
        with pytest.raises(FormatError, match="cancelled/run"):
            log.entry("cancelled", "run")
        assert log.layouts().pending is None
        log.remove_cancelled("run")
        assert log.entry("cancelled", "run") is None


@pytest.mark.parametrize("count", ["0", "-1", "1e12", "1000000000000", '"16"', "null", "Infinity", "[" * 100_000])
def test_a_forged_partition_count_of_the_registry_is_an_error(broker, topic, count):
    spec = replace(spec_of(broker.bootstrap, topic), prefix=topic)
    make_topic(spec.bootstrap_servers, spec.layouts_topic)
    record(spec.bootstrap_servers, spec.layouts_topic, ("registry", f'{{"partitions": {count}}}'))
    with KafkaLog(spec) as log, pytest.raises(FormatError, match=spec.layouts_topic):
        log.plan("job")


def test_a_tombstone_takes_a_job_away_and_the_next_record_is_the_first(spec):
    make_topic(spec.bootstrap_servers, spec.registry_topic)
    with KafkaLog(spec) as log:
        plan = log.record_plan(plan_of(log, "job"))
        record(spec.bootstrap_servers, spec.registry_topic, (key_of(spec, "plan", "job"), None))
        assert log.plan("job") is None
        again = replace(plan, pinned_by="again")
        assert log.record_plan(again) == again
    with KafkaLog(spec) as log:
        assert log.plan("job") == again
        assert log.record_plan(plan) == again


def test_driver_killed_during_a_put_does_not_block_others_for_long(spec):
    make_topic(spec.bootstrap_servers, spec.registry_topic)
    with KafkaLog(spec) as log:
        log.record_plan(plan_of(log, "job"))
        registered = log._registry.of(key_of(spec, "plan", "job"))
        dead = TransactionalProducer(registered._spec, f"{spec.prefix}/dead")
        dead.init(SECONDS)
        dead.begin()
        entry = records_of_bytes([key_of(spec, "plan", "dead").encode()], [b"{}"])
        assert produce(dead, TopicPartition(spec.registry_topic, 0), entry, 0, SECONDS) is not None
        dead.close()
        claimed_after = time.monotonic()
        # Expansions are in another topic, so a claim does not wait at all.
        assert isinstance(log.claim(0, plan_of(log, "job")), Claim)
        assert time.monotonic() - claimed_after < 10
        mine = plan_of(log, "other")
        assert log.record_plan(mine) == mine
        assert log.plan("dead") is None


def test_late_writer_of_a_forgotten_plan_appends_nothing(spec):
    """An expansion finds such ids by the plans in the registry. So an id is fenced before its plan is removed."""
    with KafkaLog(spec) as log, KafkaLog(spec) as sleeper:
        plan = log.record_plan(plan_of(log, "job", "none"))
        writer = JobWriter(sleeper, plan)
        writer.must_append("a")
        assert log.jobs_with_own_id(plan.log_id, 0) == ["job"]
        assert forget_job(log, "job", 0, force=True) == 1
        assert log.jobs_with_own_id(plan.log_id, 0) == []
        assert expand_log(log, 2).partitions == 2
        assert not isinstance(writer.append(table_of("b")), Appended)
        assert values_in(log, 0) == ["a"]


def test_a_forgotten_job_leaves_that_of_the_same_name_on_another_topic_alone(spec):
    other = replace(spec, topic=create_topic(spec.bootstrap_servers))
    with KafkaLog(spec) as log, KafkaLog(other) as neighbour:
        run_job(log, "job", TEN)
        crash_after_chunks(neighbour, "job", TEN, 2)
        forget_job(log, "job", 0, force=True)
        assert run_job(neighbour, "job", TEN).rows == 10
        assert values_in(neighbour, 0) == TEN[0]
