"""Atomic loads under faults, each a transaction over all partitions. Readers see all rows once, or none."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from spark_cas import append_once
from spark_cas.core.claim import Claim
from spark_cas.core.errors import (
    BatchTooLargeError,
    ConflictError,
    FencedError,
    InputChangedError,
    StorageError,
    TransactionEndedError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch
from spark_cas.core.outcome import Appended, Conflict, Fenced
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append import fence
from spark_cas.log.kafka.append.atomic_append import GroupWriter
from spark_cas.log.kafka.append.checks import Checks
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.append_micro_batch import begin_stream, complete_batch, load_batch
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.atomic_load import Spool, abort_group, commit_group, in_one_transaction, with_group
from spark_cas.log.load.locking import abort_job
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.whole import everything
from tests.kafka.clients import SECONDS, create_topic
from tests.kafka.clients import append as append_as_others_do
from tests.kafka.faulted import APIS, JOB, all_at_once, spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, Where, naming
from tests.kafka.stopped import undecided
from tests.long import full
from tests.support.batches import run_batch
from tests.support.loads import LIMITS, batches_of, rows_of
from tests.support.writing import JobWriter, append_foreign, table_of
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROWS = rows_of(10, 0, 1)
NOTHING: dict[int, list[str]] = {0: [], 1: []}


def by_whole(spec: KafkaSpec) -> Where:
    """Select the requests of the load's writer."""
    return naming(spec.id_of_atomic_load(JOB))


def pin(log: Backend) -> Plan:
    return pin_plan(log, JOB, ExpectedOffsets.parse("end"), whole=True)


def in_one_step(
    log: Backend, plan: Plan, rows: Spool, task: str, wait_seconds: float = 1.0
) -> tuple[PartitionResult, ...]:
    append = partial(append_rows, log, plan, rows, task=task, limits=LIMITS, fenced_retry_wait_seconds=wait_seconds)
    return in_one_transaction(log, plan, append, fenced_retry_wait_seconds=wait_seconds)


def load_whole(log: Backend, plan: Plan) -> int:
    """Load as the only task of an atomic load does, then complete the job as its driver does."""
    with Spool(batches_of(ROWS, 4)) as rows:
        results = in_one_step(log, plan, rows, "run/0")
    return complete_job(log, plan, results).rows


def seen_in(address: str, topic: str) -> dict[int, list[str]]:
    with KafkaLog(spec_of(address, topic)) as log:
        return everything(log)


@pytest.mark.parametrize(
    "fault",
    [Fault.DROP_RESPONSE, Fault.RESET_BEFORE_RESPONSE, *full(Fault.RESET_BEFORE_REQUEST)],
    ids=lambda each: each.name,
)
def test_all_rows_are_stored_once_after_each_loss(proxied, fault):
    def through(api):
        topic = create_topic(proxied.direct, 2)
        spec = spec_of(proxied.bootstrap, topic)
        rule = proxied.proxy.add(fault, api, nth=1, where=by_whole(spec))
        with KafkaLog(spec) as log:
            assert load_whole(log, pin(log)) == 20
        rule.reached.wait(0)
        return seen_in(proxied.direct, topic)

    assert dict(zip(APIS, all_at_once(through, APIS), strict=True)) == dict.fromkeys(APIS, ROWS)


def test_next_claim_detects_an_abort_if_the_first_failed(broker, monkeypatch):
    """The first claim fails after it has acquired its fence. By then, the load is aborted."""
    topic = create_topic(broker.bootstrap, 2)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log, KafkaLog(spec_of(broker.bootstrap, topic)) as other:
        plan = pin(log)
        abort_group(other, plan)
        learn = Checks.changed
        monkeypatch.setattr(Checks, "changed", Mock(side_effect=StorageError("the registry does not answer")))
        with pytest.raises(StorageError):
            log.claim(0, plan)
        monkeypatch.setattr(Checks, "changed", learn)
        assert log.claim(1, plan) == Fenced(None)


def test_a_call_whose_commit_does_not_arrive_sends_all_of_it_again(proxied):
    """The client gives up after two requests."""
    topic = create_topic(proxied.direct, 2)
    spec = spec_of(proxied.bootstrap, topic)
    lost = proxied.proxy.add(Fault.DROP_REQUEST, Api.END_TXN, times=2, where=by_whole(spec))
    with KafkaLog(spec) as log:
        given = {partition: table_of(values) for partition, values in ROWS.items()}
        found = append_once(log, given, job=JOB, expected_offset={0: 0, 1: 0})
        assert [type(each) for each in found.values()] == [Appended, Appended]
    lost.reached.wait(0)
    assert seen_in(proxied.direct, topic) == ROWS


def test_call_whose_commit_never_arrives_ends_at_its_timeout(proxied):
    topic = create_topic(proxied.direct, 2)
    spec = spec_of(proxied.bootstrap, topic, request_seconds=0.5, message_timeout_ms="6000")
    proxied.proxy.add(Fault.DROP_REQUEST, Api.END_TXN, times=None, where=by_whole(spec))
    with KafkaLog(spec) as log:
        given, began = {partition: table_of(values) for partition, values in ROWS.items()}, time.monotonic()
        with pytest.raises(StorageError, match="Nothing of the load is visible"):
            append_once(log, given, job=JOB, expected_offset={0: 0, 1: 0})
        assert spec.patience_seconds < time.monotonic() - began < 3 * spec.patience_seconds
    assert seen_in(proxied.direct, topic) == NOTHING


@pytest.mark.parametrize("asleep", [True, *full(False)])
def test_load_that_slept_past_its_timeout_is_sent_again(broker, monkeypatch, asleep):
    """This includes the case in which the machine sleeps, so that the monotonic clock stops."""
    topic = create_topic(broker.bootstrap, 2)
    spec = replace(spec_of(broker.bootstrap, topic), transaction_timeout_ms=2_000)
    commit, commits = TransactionalProducer.commit, []

    def late(producer):
        if producer._settings["transactional.id"] != spec.id_of_atomic_load(JOB):
            return commit(producer)
        commits.append(producer)
        if len(commits) == 1:
            stopped, steady = time.monotonic(), time.monotonic
            wait_until(lambda: undecided(broker.bootstrap, topic) == 0, SECONDS, lambda: "it stays open")
            if asleep:
                slept = steady() - stopped
                awake = SimpleNamespace(monotonic=lambda: steady() - slept, time=time.time)
                monkeypatch.setattr(fence, "time", awake)
        return commit(producer)

    monkeypatch.setattr(TransactionalProducer, "commit", late)
    with KafkaLog(spec) as log:
        given = {partition: table_of(values) for partition, values in ROWS.items()}
        found = append_once(log, given, job=JOB, expected_offset={0: 0, 1: 0})
    assert [type(each) for each in found.values()] == [Appended, Appended]
    assert len(commits) == 2
    assert seen_in(broker.bootstrap, topic) == ROWS


@pytest.mark.parametrize("committed", [True, False])
def test_ledger_resolves_a_commit_with_a_lost_reply(proxied, committed):
    """If the load was not committed, the writer sends all rows again."""
    topic = create_topic(proxied.direct, 2)
    spec = spec_of(proxied.bootstrap, topic)
    fault = Fault.RESET_BEFORE_RESPONSE if committed else Fault.DROP_REQUEST
    sent = proxied.proxy.add(Fault.WATCH, Api.ADD_OFFSETS_TO_TXN, nth=2, where=by_whole(spec))
    rule = proxied.proxy.add(fault, Api.END_TXN, where=by_whole(spec))
    with KafkaLog(spec) as log:
        assert load_whole(log, pin(log)) == 20
    rule.reached.wait(0)
    assert seen_in(proxied.direct, topic) == ROWS
    if committed:
        with pytest.raises(TimeoutError):
            sent.reached.wait(0)


def test_foreign_record_does_not_prove_the_commit(proxied):
    """The load has no row for partition 1, where the last record is from a producer without transactions."""
    topic = create_topic(proxied.direct, 2)
    spec = spec_of(proxied.bootstrap, topic)
    other = Producer({"bootstrap.servers": proxied.direct})
    other.produce(topic, "x", partition=1)
    assert other.flush(SECONDS) == 0
    rule = proxied.proxy.add(Fault.DROP_REQUEST, Api.END_TXN, times=2, where=by_whole(spec))
    with KafkaLog(spec) as log:
        plan = pin(log)
        writers = [JobWriter(log, plan, each) for each in range(2)]
        writers[0].must_append("a", complete=True)
        writers[1].must_append(complete=True)
        results = [PartitionResult(each.claim.progress, 0, 0) for each in writers if each.claim.progress]
        with pytest.raises(TransactionEndedError):
            commit_group(log, plan, results)
    rule.reached.wait(0)
    assert seen_in(proxied.direct, topic) == {0: [], 1: ["x"]}


def test_record_proves_the_commit_if_the_ledger_is_outdated(broker, monkeypatch):
    """The last chunk of the partition has no rows, so the record is of the chunk before."""
    topic = create_topic(broker.bootstrap, 2)
    spec, commit = spec_of(broker.bootstrap, topic), TransactionalProducer.commit

    def unanswered(producer):
        commit(producer)
        if producer._settings["transactional.id"] == spec.id_of_atomic_load(JOB):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(TransactionalProducer, "commit", unanswered)
    monkeypatch.setattr(GroupWriter, "_entries", lambda _self, partitions: (None,) * len(partitions))
    with KafkaLog(spec) as log:
        plan = pin(log)
        writer = JobWriter(log, plan)
        writer.must_append("a")
        writer.must_append(complete=True)
        assert writer.claim.progress
        commit_group(log, plan, [PartitionResult(writer.claim.progress, 0, 0)])
        assert everything(log) == {0: ["a"], 1: []}


def test_interleaved_producer_rejects_the_whole_load(broker):
    topic = create_topic(broker.bootstrap, 2)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        plan = pin(log)
        append_as_others_do(broker.bootstrap, topic, "barging in")
        with pytest.raises(ConflictError) as raised:
            load_whole(log, plan)
        assert raised.value.partition == 0
        abort_group(log, plan)
        assert everything(log) == {0: ["barging in"], 1: []}


@pytest.mark.parametrize("partition", [0, 1])
def test_record_between_check_and_send_is_detected_before_the_commit(broker, monkeypatch, partition):
    topic = create_topic(broker.bootstrap, 2)
    send = GroupWriter._send
    late: list[str] = []

    def barge_in(self, claim, chunk, bounds, *, last):
        if claim.partition == partition and not late:
            late.append(produce_plainly(broker.bootstrap, topic, partition))
        return send(self, claim, chunk, bounds, last=last)

    monkeypatch.setattr(GroupWriter, "_send", barge_in)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        with pytest.raises(ConflictError) as raised:
            load_whole(log, pin(log))
        assert raised.value.partition == partition
        abort_group(log, pin(log))
        assert everything(log) == NOTHING | {partition: ["barging in"]}


def produce_plainly(address: str, topic: str, partition: int) -> str:
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, "barging in", partition=partition)
    assert producer.flush(10) == 0
    return "barging in"


def test_load_without_a_lock_is_aborted_by_hand(broker):
    topic = create_topic(broker.bootstrap, 2)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log, KafkaLog(spec_of(broker.bootstrap, topic)) as other:
        plan = pin(log)
        results = append_rows(log, plan, batches_of(ROWS, 4), task="run/0", limits=LIMITS)
        assert abort_job(other, JOB) is None
        with pytest.raises(FencedError, match="was aborted before it was complete"):
            complete_job(log, plan, results)
        append_foreign(other, 0, "next")
        assert everything(other) == {0: ["next"], 1: []}


@pytest.mark.parametrize(("rows", "minutes"), [(1, 1), (10**9, 5), (3 * 10**9, 13)])
def test_a_transaction_may_be_open_for_as_long_as_its_bytes_take(rows, minutes):
    spec = KafkaSpec("localhost:9092", "flights").with_transaction_of(rows)
    assert spec.transaction_timeout_ms // 60_000 == minutes
    with pytest.raises(BatchTooLargeError, match="Load it in parts"):
        spec.with_transaction_of(4 * 10**9)


def test_append_once_takes_several_partitions_in_one_transaction(broker):
    topic = create_topic(broker.bootstrap, 2)
    both = {0: table_of("ab"), 1: table_of("c")}
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        taken = append_foreign(log, 1, "x").range.end_offset
        refused = append_once(log, both, job="both", expected_offset={0: 0, 1: 0})
        assert [type(each) for each in refused.values()] == [Conflict]
        assert everything(log) == {0: [], 1: ["x"]}
        for again in (False, True):
            outcomes = append_once(log, both, job="both", expected_offset={0: 0, 1: taken})
            assert [isinstance(each, Appended) and each.resolved for each in outcomes.values()] == [again, again]
        assert everything(log) == {0: ["a", "b"], 1: ["x", "c"]}
        end = log.bounds(0).end_offset
        only_looked = append_once(log, {0: table_of("d")}, job="one", expected_offset={0: end, 1: taken})
        assert [type(each) for each in only_looked.values()] == [Conflict]
        assert everything(log) == {0: ["a", "b"], 1: ["x", "c"]}


WRITER = """
import sys
from dataclasses import replace
from tests.kafka.faults.test_whole_load import LIMITS, ROWS, pin, batches_of, spec_of
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.load.append_rows import append_rows
address, topic, timeout_ms = sys.argv[1:]
with KafkaLog(replace(spec_of(address, topic), transaction_timeout_ms=int(timeout_ms))) as log:
    append_rows(log, pin(log), batches_of(ROWS, 4), task="dead/0", limits=LIMITS)
    print("here", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("then", ["the same job again", "another load", "aborted by hand"])
def test_open_transaction_of_a_killed_writer_is_aborted_at_once(broker, then):
    topic = create_topic(broker.bootstrap, 2)
    root = Path(__file__).parents[3]
    # Another load waits until the brokers end the open transaction. A rerun of the same load does not.
    timeout_ms = 3_000 if then == "another load" else 60_000
    command = [sys.executable, "-c", WRITER, broker.bootstrap, topic, str(timeout_ms)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "here\n"
        writer.kill()
    assert seen_in(broker.bootstrap, topic) == NOTHING
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        if then == "the same job again":
            assert load_whole(log, pin(log)) == 20
            assert everything(log) == ROWS
        elif then == "another load":
            append_foreign(log, 0, "next")
            assert everything(log) == {0: ["next"], 1: []}
        else:
            plan = log.plan(JOB)
            assert plan is not None
            abort_group(log, plan)
            append_foreign(log, 0, "next")
            assert everything(log) == {0: ["next"], 1: []}


def test_replaced_run_does_not_disturb_the_other(broker):
    topic = create_topic(broker.bootstrap, 2)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as first, KafkaLog(spec_of(broker.bootstrap, topic)) as second:
        plan, again = pin(first), pin(second)
        mine = JobWriter(first, plan, 0)
        mine.must_append("a")
        theirs = JobWriter(second, again, 0)
        theirs.must_append("a")
        assert isinstance(mine.append(table_of("b")), Fenced)
        assert isinstance(first.claim(1, plan), Fenced), "without its own fence"
        theirs.must_append("b", complete=True)
        held = theirs.claim.progress
        assert held is not None
        commit_group(second, again, [PartitionResult(held, 0, 0)])
        assert everything(first) == {0: ["a", "b"], 1: []}
        claim = first.claim(0, plan)
        assert isinstance(claim, Claim)
        assert claim.progress == held


def test_claim_after_an_abort_commits_nothing(broker):
    """The task begins to append only after Spark's driver has given it up."""
    topic = create_topic(broker.bootstrap, 2)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as late, KafkaLog(spec_of(broker.bootstrap, topic)) as driver:
        plan = pin(driver)
        abort_group(driver, plan)
        with Spool(batches_of(ROWS, 4)) as rows, pytest.raises(FencedError):
            in_one_step(late, plan, rows, "run/0", wait_seconds=0.2)
        assert everything(driver) == NOTHING
        assert load_whole(late, pin(late)) == 20
        assert everything(driver) == ROWS


def test_offsets_are_those_of_the_committing_run(broker):
    topic = create_topic(broker.bootstrap, 2)
    with KafkaLog(spec_of(broker.bootstrap, topic)) as slow, KafkaLog(spec_of(broker.bootstrap, topic)) as fast:
        plan = pin(slow)
        with Spool(batches_of(ROWS, 4)) as rows:
            results = append_rows(slow, plan, rows, task="slow/0", limits=LIMITS)
            assert load_whole(fast, pin(fast)) == 20
            with pytest.raises(InputChangedError, match="was committed by another run"):
                commit_group(slow, plan, results)
            again = in_one_step(slow, plan, rows, "slow/0")
        held = fast.progress_of(range(2), JOB)
        assert tuple(each.progress for each in again) == held
        assert complete_job(slow, plan, again).rows == 20
        assert everything(fast) == ROWS


def test_rejected_load_does_not_block_others(broker):
    """The second partition of the task is rejected. Its transaction would otherwise stay open for a minute."""
    topic = create_topic(broker.bootstrap, 2)
    spec = KafkaSpec(broker.bootstrap, topic)
    with KafkaLog(replace(spec, open_transaction_wait_ms=3_000)) as other:
        with KafkaLog(spec) as refused:
            plan = pin(refused)
            append_rows(refused, plan, batches_of({1: ROWS[1]}, 4), task="run/0", limits=LIMITS)
            append_as_others_do(broker.bootstrap, topic, "in between")
            with pytest.raises(ConflictError):
                append_rows(refused, plan, batches_of({0: ROWS[0]}, 4), task="run/0", limits=LIMITS)
        assert [each.end_offset > 0 for each in other.bounds_of(range(2), waiting=True)] == [True, True]
        assert everything(other) == {0: ["in between"], 1: []}


def test_two_loads_that_block_each_other_both_end(broker, monkeypatch):
    """Each has a transaction open in one partition, and waits for that of the other before it checks the second."""
    topic = create_topic(broker.bootstrap, 2)
    meet, met, inner = Barrier(2, timeout=SECONDS), set[str](), KafkaLog.append

    def meeting(self, claim, chunk):
        outcome = inner(self, claim, chunk)
        if claim.plan.job not in met:
            met.add(claim.plan.job)
            meet.wait()
        return outcome

    monkeypatch.setattr(KafkaLog, "append", meeting)

    def append(mine):
        with KafkaLog(KafkaSpec(broker.bootstrap, topic)) as log:
            return append_once(log, {mine: table_of("x")}, job=f"job-{mine}", expected_offset={0: 0, 1: 0})

    outcomes = all_at_once(append, (0, 1))
    assert met == {"job-0", "job-1"}
    assert sum(all(isinstance(found, Appended) for found in each.values()) for each in outcomes) == 1, outcomes
    with KafkaLog(KafkaSpec(broker.bootstrap, topic)) as log:
        assert sorted(everything(log).values()) == [[], ["x"]]


@pytest.mark.parametrize("batch_id", [None, 5])
def test_committed_load_is_not_extended_with_other_partitions(broker, batch_id):
    """The driver of the first run dies after the commit. The next run places its rows in other partitions."""
    topic = create_topic(broker.bootstrap, 2)

    def run(run, rows):
        with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
            if batch_id is None:
                plan = pin(log)
                append = partial(append_rows, limits=LIMITS)
            else:
                plan = with_group(log, begin_stream(log, JOB, ExpectedOffsets("none"), whole=True), batch_id)
                append = partial(load_batch, limits=replace(LIMITS, max_records=100))
            given = (log, plan) if batch_id is None else (log, plan, Batch("q", batch_id))
            with Spool(batches_of(rows, 4)) as kept:
                once = partial(append, *given, kept, task=f"{run}/0")
                in_one_transaction(log, plan, once, fenced_retry_wait_seconds=1.0)

    run("first", {0: ROWS[0]})
    with pytest.raises(InputChangedError, match="was committed by another run"):
        run("second", {1: ROWS[1]})
    assert seen_in(broker.bootstrap, topic) == {0: ROWS[0], 1: []}


def test_abort_of_a_committed_load_does_not_disturb_its_writer(broker):
    """A driver gives up late: the batch is committed, and the next one is in progress."""
    topic = create_topic(broker.bootstrap, 2)
    spec = spec_of(broker.bootstrap, topic)
    with KafkaLog(spec) as log, KafkaLog(spec) as late:
        run_batch(log, 0, {0: ["a"], 1: ["b"]}, whole=True)
        plan = with_group(log, begin_stream(log, "stream", ExpectedOffsets("none"), whole=True), 1)
        results = load_batch(log, plan, Batch("q", 1), batches_of({0: ["c"]}, 4), task="run/0", limits=LIMITS)
        abort_group(late, with_group(late, replace(plan, group=""), 0))
        complete_batch(log, plan, Batch("q", 1), results)
        assert everything(late) == {0: ["a", "c"], 1: ["b"]}


def test_commit_of_another_call_before_an_expansion_is_no_conflict(broker, monkeypatch):
    """The other call commits between the two checks of the claim.

    The claim then fences no other writer, and it reads only rows of its own job.
    """
    topic = create_topic(broker.bootstrap, 2)
    given, take_over = {0: table_of("a"), 1: table_of("b")}, GroupWriter._take_over
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log, KafkaLog(spec_of(broker.bootstrap, topic)) as other:

        def overtaken(self, checks, plan):
            monkeypatch.setattr(GroupWriter, "_take_over", take_over)
            append_once(other, given, job=JOB, expected_offset={0: 0, 1: 0})
            expand_log(other, 3)
            return take_over(self, checks, plan)

        monkeypatch.setattr(GroupWriter, "_take_over", overtaken)
        found = append_once(log, given, job=JOB, expected_offset={0: 0, 1: 0})
        assert all(isinstance(each, Appended) and each.resolved for each in found.values()), found
        assert everything(log) == {0: ["a"], 1: ["b"], 2: []}
