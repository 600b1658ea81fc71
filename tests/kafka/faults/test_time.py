"""Effects of time and administrators: expired transactions, and deleted ledgers, records and topics."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka.admin import NewTopic

from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    LogNotSharedError,
    ProgressLostError,
    StorageError,
    TrimmedError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, ProgressLost
from spark_cas.log import clock
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.load.planning import pin_plan
from tests.contract.keying import run_keyed
from tests.kafka.clients import SECONDS, admin_of, append, committed_values, create_topic
from tests.kafka.faulted import JOB, planned_writer, spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault
from tests.kafka.stopped import stopped_at, undecided
from tests.long import full
from tests.support.batches import run_batch
from tests.support.faults import Fault as Interruption
from tests.support.faults import FaultyLog, InjectedFaultError, When
from tests.support.loads import TEN, crash_after_chunks, run_job
from tests.support.writing import JobWriter, append_foreign, table_of, values_in
from tools.kafka_broker import KafkaBroker
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.mark.parametrize("overtaken", [False, True], ids=["alone", "overtaken"])
def test_a_writer_that_sleeps_longer_than_its_transaction_may(broker, topic, overtaken):
    spec = spec_of(broker.bootstrap, topic)
    with stopped_at("commit", broker, topic) as told:
        if overtaken:
            with KafkaLog(spec) as log:
                planned_writer(log).must_append("p", "q")
        wait_until(lambda: undecided(broker.bootstrap, topic) == 0, SECONDS, lambda: "the transaction stays open")
    # If no other writer was active, the writer detects this, claims the partition again and continues.
    assert told == ["Fenced" if overtaken else "Appended"]
    assert committed_values(broker.bootstrap, topic) == ([*"abpq"] if overtaken else [*"abxyz"])


@pytest.mark.parametrize("step", ["commit", *full("produced", "begin", "ledger", "committed")])
def test_overtaken_writer_shows_nothing_when_it_wakes(broker, topic, step):
    committed = [*"abxyz"] if step == "committed" else [*"ab"]
    with stopped_at(step, broker, topic, timeout_ms=20_000) as told:
        with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
            planned_writer(log).must_append("p", "q")
        assert committed_values(broker.bootstrap, topic) == [*committed, "p", "q"]
    assert told == ["Appended" if step == "committed" else "Fenced"]
    assert committed_values(broker.bootstrap, topic) == [*committed, "p", "q"]
    assert undecided(broker.bootstrap, topic) == 0


def test_driver_that_slept_during_planning_appends_nothing(broker, topic):
    with (
        stopped_at("plan", broker, topic, timeout_ms=20_000) as told,
        KafkaLog(spec_of(broker.bootstrap, topic)) as log,
    ):
        done = run_job(log, JOB, TEN)
    assert told == [str(len(TEN[0]))]
    assert committed_values(broker.bootstrap, topic) == TEN[0]
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        assert log.completion(JOB) == done


def forget(spec):
    """Delete the job's ledger, as Kafka does after `offsets.retention.minutes`."""
    admin, group = admin_of(spec.bootstrap_servers), spec.group(JOB)
    admin.delete_consumer_groups([group])[group].result(SECONDS)


def test_a_complete_job_stays_complete_without_its_ledger(broker, topic):
    spec = spec_of(broker.bootstrap, topic)
    with KafkaLog(spec) as log:
        done = run_job(log, JOB, TEN)
        forget(spec)
        assert log.progress(0, JOB) is None
        assert log.completion(JOB) == done
        with pytest.raises(ConflictError):
            run_job(log, JOB, TEN, run="run-2")
        assert log.completion(JOB) == done
        assert values_in(log, 0) == TEN[0]


def test_an_incomplete_job_without_its_ledger_ends_in_a_conflict(broker, topic):
    spec = spec_of(broker.bootstrap, topic)
    with KafkaLog(spec) as log:
        crash_after_chunks(log, JOB, TEN, 2)
        forget(spec)
        for run in ("run-2", "run-3"):
            with pytest.raises(ConflictError) as raised:
                run_job(log, JOB, TEN, run=run)
            assert raised.value.expected_offset == 0
        assert values_in(log, 0) == TEN[0][:6]


def test_an_incomplete_job_without_check_and_ledger_is_a_persons(broker, topic):
    spec = spec_of(broker.bootstrap, topic)
    with KafkaLog(spec) as log:
        crash_after_chunks(log, JOB, TEN, 2, expected="none")
        forget(spec)
        for run in ("run-2", "run-3"):
            with pytest.raises(ProgressLostError):
                run_job(log, JOB, TEN, expected="none", run=run)
        assert values_in(log, 0) == TEN[0][:6]


@pytest.fixture(scope="module")
def forgetful(conf):
    """A broker that keeps ledger entries for a day."""
    with KafkaBroker(conf, settings={"offsets.retention.minutes": "1440"}) as broker:
        yield broker


def keyed_load(log, run):
    run_keyed(log, JOB, [("a", 0), ("b", 0)], expected="end", run=run)


def micro_batch(log, run):
    run_batch(log, 0, {0: ["a", "b"]}, job=JOB, run=run)


@pytest.mark.parametrize(("append", "chunk"), [(keyed_load, 1), (micro_batch, 2)])
def test_rerun_after_half_of_the_retention_appends_no_row_twice(forgetful, append, chunk, monkeypatch):
    """After that time, a missing entry does not show that the job has no row."""
    spec, now_ms = spec_of(forgetful.bootstrap, create_topic(forgetful.bootstrap)), clock.now_ms
    with KafkaLog(spec) as log:
        with pytest.raises(InjectedFaultError):
            append(FaultyLog(log, Interruption("append", chunk, When.AFTER)), "run")
        forget(spec)
        append_foreign(log, 0, "x")
        before = values_in(log, 0)
        monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + 13 * 3_600_000)
        for run in ("run-2", "run-3"):
            with pytest.raises(ProgressLostError):
                append(log, run)
        assert values_in(log, 0) == before
        assert len(before) == 3


def test_retried_task_of_the_first_run_detects_an_expired_ledger(broker, topic, monkeypatch):
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        plan = pin_plan(log, JOB, ExpectedOffsets("none"))
        JobWriter(log, plan).must_append("a")
        forget(log.spec)
        monkeypatch.setattr(clock, "now_ms", lambda: plan.pinned_at_ms + 4 * 86_400_000)
        assert log.claim(0, plan) == ProgressLost(JOB)
        assert values_in(log, 0) == ["a"]


def test_retention_of_the_ledger_is_requested_until_a_broker_answers(proxied, proxied_topic):
    """With a guess that is too long, rows whose ledger entry has expired would be appended again."""
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic)) as log:
        log.layout()
        dropped = proxied.proxy.add(Fault.DROP_RESPONSE, Api.DESCRIBE_CONFIGS, times=2)
        assert log.ledger_kept_ms() is not None
        dropped.reached.wait(SECONDS)


def test_retention_of_the_ledger_that_no_broker_answers_is_an_error(proxied, proxied_topic):
    with KafkaLog(spec_of(proxied.bootstrap, proxied_topic, request_seconds=0.5)) as log:
        log.layout()
        proxied.proxy.add(Fault.DROP_RESPONSE, Api.DESCRIBE_CONFIGS, times=None)
        with pytest.raises(StorageError, match="keep ledger entries"):
            log.unexpired_ms()


@pytest.mark.parametrize("topic", [2], indirect=True)
def test_stream_continues_after_foreign_records_were_deleted(broker, topic):
    """The ledger does not change when records are deleted. Rows without a ledger entry were never appended."""
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        run_batch(log, 0, {0: ["a"]})
        log.trim(1, append_foreign(log, 1, "x").range.end_offset)
        run_batch(log, 1, {0: ["b"], 1: ["c"]})
        assert (values_in(log, 0), values_in(log, 1)) == (["a", "b"], ["c"])


def test_a_job_without_check_and_ledger_whose_rows_were_deleted_is_a_persons(broker, topic):
    spec = spec_of(broker.bootstrap, topic)
    with KafkaLog(spec) as log:
        crash_after_chunks(log, JOB, TEN, 2, expected="none")
        log.trim(0, log.bounds(0).end_offset)
        forget(spec)
        with pytest.raises(ProgressLostError):
            run_job(log, JOB, TEN, expected="none", run="run-2")
        assert values_in(log, 0) == []


def test_records_deleted_during_a_read_are_reported(proxied, proxied_topic):
    values = [str(at).rjust(1_000) for at in range(400)]
    for at in range(0, 400, 50):
        append(proxied.direct, proxied_topic, *values[at : at + 50])
    spec = spec_of(proxied.bootstrap, proxied_topic, fetch_message_max_bytes="60000", queued_min_messages="1")
    with KafkaLog(spec) as log, ThreadPoolExecutor(1) as thread:
        bounds = log.bounds(0)
        third = proxied.proxy.add(Fault.HOLD_REQUEST, Api.FETCH, nth=3)
        reading = thread.submit(list, log.read(0, bounds.range))
        third.reached.wait(SECONDS)
        with KafkaLog(spec_of(proxied.direct, proxied_topic)) as admin:
            assert admin.trim(0, bounds.end_offset - 10).start_offset == bounds.end_offset - 10
        third.release()
        with pytest.raises(TrimmedError, match=f"to {bounds.end_offset - 11} were removed .* Read again"):
            reading.result(SECONDS)


def recreate(address, topic):
    admin = admin_of(address)
    admin.delete_topics([topic])[topic].result(SECONDS)
    wait_until(lambda: topic not in admin.list_topics(timeout=SECONDS).topics, SECONDS, lambda: "the topic stays")
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS)


@pytest.mark.parametrize("filled", [False, True], ids=["empty", "filled to the same end"])
def test_a_topic_that_was_created_again_is_not_the_planned_one(broker, topic, filled):
    spec = spec_of(broker.bootstrap, topic)
    with KafkaLog(spec) as log, KafkaLog(spec) as other:
        job = planned_writer(log)
        if filled:
            job.must_append("a")
        recreate(broker.bootstrap, topic)
        others = []
        if filled:
            append(broker.bootstrap, topic, "b")
            others = ["b"]
        with pytest.raises(LogNotSharedError):
            other.claim(0, job.claim.plan)
        outcome = None
        with suppress(ConditionalLogError):
            outcome = job.append(table_of("xyz"))
        assert not isinstance(outcome, Appended), outcome
    assert committed_values(broker.bootstrap, topic) == others


def test_recreated_topic_is_not_reported_as_truncated(broker, topic, set_timing):
    set_timing(fresh_age=SECONDS)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        planned_writer(log).must_append("a")
        plan = pin_plan(log, "next", ExpectedOffsets("end"))
        recreate(broker.bootstrap, topic)
        with pytest.raises(LogNotSharedError):
            JobWriter(log, plan).append(table_of("b"))
    assert committed_values(broker.bootstrap, topic) == []
