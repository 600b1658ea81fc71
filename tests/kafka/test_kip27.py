"""The cases of KIP-27 (conditional publish), each on a real broker without support for expected offsets."""

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from spark_cas import append_once
from spark_cas.core.errors import ConflictError, ProgressLostError, StorageError
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Appended, Conflict, Fenced
from spark_cas.core.records import RECORDS
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append.checks import Checks
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.contract.base import at_once
from tests.kafka.clients import SECONDS, admin_of, committed_values, create_topic
from tests.kafka.clients import append as append_as_others_do
from tests.kafka.readers import barging_in, only_aborting, open_transaction, reading, wait_for
from tests.support.loads import run_job
from tests.support.writing import (
    TIME_MS,
    JobWriter,
    append_foreign,
    claim_of,
    plan_of,
    records_in,
    table_of,
    values_in,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROUNDS = 32


@pytest.fixture
def spec(broker, topic):
    return KafkaSpec(broker.bootstrap, topic, open_transaction_wait_ms=20_000, transaction_timeout_ms=20_000)


@pytest.fixture
def log(spec):
    with KafkaLog(spec) as opened:
        yield opened


def chunks_among(values: list[str]) -> list[str]:
    """Return the names of the chunks of three, without foreign values. Asserts that each chunk is complete."""
    ours = [value for value in values if not value.startswith("foreign")]
    names = [value.partition("/")[0] for value in ours[::3]]
    assert ours == [f"{name}/{row}" for name in names for row in range(3)]
    return names


def require_whole_chunks(seen: list[tuple[int, str]]) -> None:
    """Assert that each chunk of three has consecutive offsets, without a record of another producer among them."""
    for at, (offset, value) in enumerate(seen):
        name, _, row = value.partition("/")
        if row in ("1", "2"):
            assert seen[at - 1] == (offset - 1, f"{name}/{int(row) - 1}")


def chunk_of(name: str):
    return table_of([f"{name}/{row}" for row in range(3)])


def test_the_right_expected_offset_appends_there(log):
    first = append_once(log, 0, table_of("ab"), job="one", expected_offset=0)
    assert isinstance(first, Appended)
    second = append_once(log, 0, table_of("c"), job="two", expected_offset=first.range.end_offset)
    assert isinstance(second, Appended)
    assert [offset for offset, _ in records_in(log, 0)] == [0, 1, second.range.base_offset]
    assert second.range.base_offset == first.range.end_offset
    assert (first.count, first.start_offset, first.has_offset, first.resolved) == (2, 0, True, False)


@pytest.mark.parametrize("expected", [0, 1, 2])
def test_a_wrong_expected_offset_refuses_the_whole_batch_and_nothing_is_visible(broker, log, topic, expected):
    append_as_others_do(broker.bootstrap, topic, "x", "y", "z")
    end = log.bounds(0).end_offset
    with reading(broker.bootstrap, topic) as seen:
        for attempt in range(5):
            refused = append_once(log, 0, table_of("abc"), job=f"late-{attempt}", expected_offset=expected)
            assert refused == Conflict(expected, end, 0)
    assert [value for _, value in seen] == ["x", "y", "z"]
    assert log.bounds(0).end_offset == end, "not even an aborted record"


@pytest.mark.parametrize(("kind", "given"), [("LogAppendTime", True), ("CreateTime", False)])
def test_append_time_of_a_topic_is_reported(broker, kind, given):
    name = create_topic(broker.bootstrap, message_timestamp_type=kind)
    rows = table_of("ab").set_column(
        3, RECORDS.field("timestamp"), pa.array([TIME_MS] * 2, pa.timestamp("ms", "UTC"))
    )
    with KafkaLog(KafkaSpec(broker.bootstrap, name)) as log:
        appended = append_once(log, 0, rows, job=f"timed-{name}", expected_offset=0)
        assert isinstance(appended, Appended)
        stored = {row["timestamp"].timestamp() * 1000 for _, row in records_in(log, 0)}
        assert appended.has_timestamp is given
        assert stored == {appended.timestamp_ms if given else TIME_MS}
        again = append_once(log, 0, rows, job=f"timed-{name}", expected_offset=0)
        assert isinstance(again, Appended)
        assert again.timestamp_ms == appended.timestamp_ms


def test_no_expectation_appends_wherever_the_end_is(broker, log, topic):
    for value in "abc":
        append_as_others_do(broker.bootstrap, topic, "x")
        assert isinstance(append_once(log, 0, table_of(value), job=value, expected_offset=None), Appended)
    assert values_in(log, 0) == ["x", "a", "x", "b", "x", "c"]


@pytest.mark.parametrize("fenced", [True, False], ids=["one-prefix", "two-prefixes"])
def test_two_writers_with_one_expectation_never_both_append(broker, spec, topic, *, fenced):
    """With one prefix, the broker also fences a writer. With two, only the delivered offsets decide."""
    other_prefix = spec.prefix if fenced else "another-team"
    with (
        KafkaLog(spec) as one,
        KafkaLog(replace(spec, prefix=other_prefix)) as two,
        reading(broker.bootstrap, topic) as seen,
    ):
        won = []
        for round_ in range(ROUNDS // 2):
            plans = [plan_of(one, f"{name}-{round_}") for name in "ab"]
            assert plans[0].expected_offsets == plans[1].expected_offsets
            writers = [JobWriter(log, plan) for log, plan in zip((one, two), plans, strict=True)]
            names = [f"{name}-{round_}" for name in "ab"]
            outcomes = at_once(*(partial(w.append, chunk_of(name)) for w, name in zip(writers, names, strict=True)))
            appended = [n for n, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, Appended)]
            assert len(appended) <= 1, outcomes
            for outcome in outcomes:
                assert isinstance(outcome, Appended | Conflict | Fenced), outcome
            won += appended
        assert chunks_among(values_in(one, 0)) == won
        assert len(won) > ROUNDS // 4, "most rounds have a winner"
    assert chunks_among([value for _, value in seen]) == won
    require_whole_chunks(seen)


def test_one_writer_that_retries_one_append_for_ever_succeeds_once(log):
    outcomes = [append_once(log, 0, table_of("abc"), job="again", expected_offset=0) for _ in range(20)]
    assert [outcome.resolved for outcome in outcomes if isinstance(outcome, Appended)] == [False] + [True] * 19
    plan = plan_of(log, "stubborn")
    claim = claim_of(log, 0, plan)
    chunk = JobWriter(log, plan).chunk(table_of("d"))
    tried = [log.append(claim, chunk) for _ in range(20)]
    assert sum(isinstance(outcome, Appended) for outcome in tried) <= 1
    assert values_in(log, 0)[:3] == list("abc")
    assert values_in(log, 0)[3:] in ([], ["d"])


def test_producer_at_random_times_is_detected_before_the_commit(broker, log, topic):
    won, refused = [], 0
    with (
        reading(broker.bootstrap, topic) as seen,
        barging_in(broker.bootstrap, topic, pause_seconds=0.4) as foreign,
    ):
        wait_for(lambda: foreign, "the other producer")
        for round_ in range(40):
            outcome = JobWriter(log, plan_of(log, f"ours-{round_}")).append(chunk_of(f"ours-{round_}"))
            if isinstance(outcome, Appended):
                won.append(f"ours-{round_}")
            else:
                assert isinstance(outcome, Conflict), outcome
                refused += 1
    assert won, "nothing was ever appended"
    assert refused, "the other producer never interleaved"
    values = [value for _, value in seen]
    assert chunks_among(values) == won
    assert [value for value in values if value.startswith("foreign")] == foreign
    require_whole_chunks(seen)


def test_writers_that_lose_the_race_bootstrap_again_and_converge(spec):
    """Each writer appends the count that it has read, plus one, if no other writer was faster: no count is lost."""

    def count_up(name: str) -> int:
        refusals = 0
        with KafkaLog(spec) as log:
            for turn in range(10):
                while True:
                    end = log.bounds(0).end_offset
                    count = len(values_in(log, 0))
                    job = f"{name}-{turn}-{refusals}"
                    outcome = append_once(log, 0, table_of([f"{count + 1}"]), job=job, expected_offset=end)
                    if isinstance(outcome, Appended):
                        break
                    assert isinstance(outcome, Conflict | Fenced), outcome
                    refusals += 1
                    assert refusals < 200, "the race does not end"
        return refusals

    at_once(partial(count_up, "a"), partial(count_up, "b"))

    with KafkaLog(spec) as log:
        assert values_in(log, 0) == [f"{count}" for count in range(1, 21)]


def test_unchecked_writers_share_a_partition_without_fencing_each_other(spec):
    def write(job: str) -> None:
        with KafkaLog(spec) as log:
            writer = JobWriter(log, plan_of(log, job, "none"))
            for chunk in range(10):
                writer.must_append(f"{job}.{chunk}", f"{job}.{chunk}'")

    at_once(*(partial(write, job) for job in "pqr"))

    with KafkaLog(spec) as log:
        values = values_in(log, 0)
    for job in "pqr":
        ours = [value for value in values if value.startswith(job)]
        assert ours == [f"{job}.{chunk}{end}" for chunk in range(10) for end in ("", "'")]


def test_another_system_s_open_transaction_is_waited_for_and_then_named(broker, spec, topic):
    hurried = replace(spec, open_transaction_wait_ms=1_000)
    with KafkaLog(hurried) as log:
        plan = plan_of(log, "checked")
        unchecked = plan_of(log, "unchecked", "none")
        other = open_transaction(broker.bootstrap, topic, f"other-{topic}")
        with pytest.raises(StorageError, match="a transaction has been open at offset 0"):
            JobWriter(log, plan)
        JobWriter(log, unchecked).must_append("u")
        assert committed_values(broker.bootstrap, topic) == []
        other.abort_transaction(20)
        JobWriter(log, replace(plan, job="again", expected_offsets=(log.bounds(0).end_offset,))).must_append("c")
    assert committed_values(broker.bootstrap, topic) == ["u", "c"]


def test_writer_skips_aborted_but_not_committed_records_after_its_chunk(broker, log, topic):
    """The writer requests no end offset. It checks the offsets of its records, which are in the ledger too."""
    job = JobWriter(log, plan_of(log, "same-job"))
    job.must_append("a")
    append_as_others_do(broker.bootstrap, topic, "aborted", commit=False)
    assert isinstance(job.append(table_of("b")), Appended)
    (_, _), (offset, _) = records_in(log, 0)
    progress = log.progress(0, "same-job")
    assert progress is not None
    assert progress.end_offset == offset + 1
    append_as_others_do(broker.bootstrap, topic, "x")
    assert isinstance(job.append(table_of("c")), Conflict)
    assert values_in(log, 0) == ["a", "b", "x"]


@pytest.mark.parametrize("came", [False, True])
def test_writer_requests_the_end_only_if_records_follow_its_claim(broker, log, topic, monkeypatch, came):
    job, barrier, asked = JobWriter(log, plan_of(log, "begins")), Checks.barrier, []

    def noting(checks: Checks, *given: int) -> Bounds:
        asked.append(checks.at.partition)
        return barrier(checks, *given)

    monkeypatch.setattr(Checks, "barrier", noting)
    if came:
        append_as_others_do(broker.bootstrap, topic, "x")
    outcome = job.append(table_of("a"))
    assert isinstance(outcome, Conflict if came else Appended)
    assert bool(asked) == came
    assert values_in(log, 0) == ["x" if came else "a"]


def test_trimmed_record_after_a_claim_is_a_conflict(broker, log, topic):
    job = JobWriter(log, plan_of(log, "begins"))
    append_as_others_do(broker.bootstrap, topic, "x")
    end = log.bounds(0).end_offset
    log.trim(0, end)
    assert isinstance(job.append(table_of("a")), Conflict)
    assert values_in(log, 0) == []


def test_record_after_the_marker_is_no_marker_for_a_new_writer(broker, log, topic, monkeypatch):
    monkeypatch.setattr(TransactionalProducer, "proven_clean", lambda _: False)
    job = JobWriter(log, plan_of(log, "same-job"))
    job.must_append("a")
    ordinary = Producer({"bootstrap.servers": broker.bootstrap})
    ordinary.produce(topic, "x", partition=0)
    assert ordinary.flush(SECONDS) == 0
    assert isinstance(job.append(table_of("b")), Conflict)
    assert values_in(log, 0) == ["a", "x"]


def test_record_before_the_marker_is_a_conflict_beside_an_open_transaction(broker, log, topic, monkeypatch):
    """The record of another producer follows the chunk directly, and the last stable offset follows that record."""
    job, commit = JobWriter(log, plan_of(log, "job")), TransactionalProducer.commit
    ordinary = Producer({"bootstrap.servers": broker.bootstrap})

    def late(producer: TransactionalProducer) -> None:
        monkeypatch.setattr(TransactionalProducer, "commit", commit)
        ordinary.produce(topic, "x", partition=0)
        assert ordinary.flush(SECONDS) == 0
        opened.append(open_transaction(broker.bootstrap, topic, f"theirs/{topic}"))
        commit(producer)

    opened: list[Producer] = []
    monkeypatch.setattr(TransactionalProducer, "commit", late)
    appended = job.must_append("a")
    assert log.bounds_of([0], waiting=False)[0].end_offset == appended.range.base_offset + 2
    opened[0].abort_transaction(SECONDS)
    assert isinstance(job.append(table_of("b")), Conflict)
    assert values_in(log, 0) == ["a", "x"]


def test_overtaken_attempt_does_not_report_rows_of_another(log, spec, monkeypatch):
    """The ledger has the same rows and digest, but the records at the offsets of this attempt were aborted."""
    plan = plan_of(log, "twice")
    commit = TransactionalProducer.commit

    def overtaken(producer: TransactionalProducer) -> None:
        monkeypatch.setattr(TransactionalProducer, "commit", commit)
        with KafkaLog(spec) as other:
            JobWriter(other, plan).must_append(*"abc")
        commit(producer)

    job = JobWriter(log, plan)
    monkeypatch.setattr(TransactionalProducer, "commit", overtaken)
    assert isinstance(job.append(table_of("abc")), Fenced)
    assert values_in(log, 0) == ["a", "b", "c"]


def test_aborting_producer_causes_no_conflict_and_is_not_fenced(broker, log, topic):
    rows = {0: [f"{at}" for at in range(60)]}
    with only_aborting(broker.bootstrap, topic, f"aborting-{topic}") as aborted:
        wait_for(lambda: len(aborted) > 3, "the other system")
        done = run_job(log, "job", rows)
        before = len(aborted)
        wait_for(lambda: len(aborted) > before, "the other system, which is not fenced")
    assert done.rows == 60
    assert committed_values(broker.bootstrap, topic) == rows[0]


def test_lost_ledger_rejects_only_an_incomplete_job(broker, log, topic):
    rows = {0: list("abcdef")}
    done = run_job(log, "complete", rows)
    writer = JobWriter(log, log.record_plan(plan_of(log, "unfinished")))
    writer.must_append("u")
    unchecked = JobWriter(log, log.record_plan(plan_of(log, "unchecked", "none")))
    unchecked.must_append("v")
    values = values_in(log, 0)
    delete_ledgers(broker.bootstrap, log.spec, "complete", "unfinished", "unchecked")

    assert log.progress(0, "unfinished") is None
    assert log.completion("complete") == done
    with pytest.raises(ConflictError):
        run_job(log, "unfinished", {0: ["u", "w"]}, run="run-2")
    with pytest.raises(ProgressLostError):
        run_job(log, "unchecked", {0: ["v", "w"]}, expected="none", run="run-2")
    assert values_in(log, 0) == values


def delete_ledgers(address: str, spec: KafkaSpec, *jobs: str) -> None:
    admin = admin_of(address)
    for future in admin.delete_consumer_groups([spec.group(job) for job in jobs]).values():
        future.result(SECONDS)


def test_ordinary_clients_go_on_reading_and_writing(broker, log, topic):
    """Any consumer sees the records that a log appends, and a log reads the records that any producer appends."""
    append_as_others_do(broker.bootstrap, topic, "theirs")
    append_foreign(log, 0, "ours")
    append_as_others_do(broker.bootstrap, topic, "aborted", commit=False)
    append_as_others_do(broker.bootstrap, topic, "theirs again")
    append_foreign(log, 0, "ours again")
    everything = ["theirs", "ours", "theirs again", "ours again"]
    assert committed_values(broker.bootstrap, topic) == everything
    assert values_in(log, 0) == everything
