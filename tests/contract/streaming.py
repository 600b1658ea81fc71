"""Streams through the protocol: each row of each batch is stored exactly once, despite crashes, replays and races."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import (
    BatchTooLargeError,
    CheckpointMismatchError,
    ConflictError,
    FencedError,
    InputChangedError,
    JobMismatchError,
    NotRoutedError,
    OptionError,
    RecordTooLargeError,
    StorageError,
    UnknownOutcomeError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_micro_batch import begin_stream, load_batch
from spark_cas.log.load.planning import job_progress, pin_plan
from tests.contract.base import ContractBase, at_once
from tests.contract.crashing import CrashContract
from tests.support.batches import rows_held, run_batch, run_cut_off, run_tasks
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import LIMITS, Rows, batches_of, run_job
from tests.support.raising import raises
from tests.support.writing import append_foreign, values_in, without_end

BATCHES: Sequence[Rows] = (
    {0: ["a0", "a1"], 1: ["a2"]},
    {0: ["b0", "b1", "b2"], 2: ["b3"]},
    {1: ["c0"]},
)
OPERATIONS = ("record_plan", "claim", "append")
WIDE = ChunkLimits(max_records=100, max_bytes=1_000_000, max_seconds=1_000)
LONG: Rows = {0: [f"{at:02d}" for at in (7, 3, 9, 1, 5, 0, 8, 2, 6, 4)]}
SORTED = sorted(LONG[0])


run_ordered = partial(run_batch, expected="end", order_by=["value"])


def run_all(log: Backend, *, expected: str = "none", run: str = "run", checkpoint: list[int] | None = None) -> None:
    """Run all batches from the last one that was started, as a query with a checkpoint does."""
    begun = [0] if checkpoint is None else checkpoint
    for number in range(begun[-1], len(BATCHES)):
        begun.append(number)
        run_batch(log, number, BATCHES[number], expected=expected, run=run)


def killed(log: Backend, number: int, rows: Rows, *, run: str = "run") -> None:
    """Start an ordered run of a batch and simulate a crash after one more chunk."""
    faulty = FaultyLog(log, Fault("append", 1, When.AFTER))
    with pytest.raises(InjectedFaultError):
        run_ordered(faulty, number, rows, run=run)


def all_values(log: Backend) -> Rows:
    """Return the values of each partition."""
    return {partition: values_in(log, partition) for partition in range(log.layout().partitions)}


def appended(*batches: Rows) -> Rows:
    """Return the values that these batches leave in the partitions of an empty log."""
    return {partition: [value for rows in batches for value in rows.get(partition, [])] for partition in range(3)}


class StreamContract(ContractBase):
    """A batch is appended once, completed if it is incomplete, verified if it is complete, and never skipped."""

    @pytest.mark.parametrize("expected", ["none", "end"])
    def test_batches_follow_one_another(self, backend: Backend, expected: str) -> None:
        run_all(backend, expected=expected)
        assert all_values(backend) == appended(*BATCHES)
        found = {each.partition: each for each in job_progress(backend, "stream")}
        assert {partition: each.rows for partition, each in found.items()} == {0: 5, 1: 2, 2: 1}
        batches = {partition: each.batch and (each.batch.id, each.batch.rows) for partition, each in found.items()}
        assert batches == {0: (1, 3), 1: (2, 1), 2: (1, 1)}
        assert not any(each.complete for each in found.values()), "a stream never ends"
        assert backend.completion("stream") is None

    def test_replayed_batch_appends_nothing_and_is_verified(self, backend: Backend) -> None:
        run_batch(backend, 0, BATCHES[0])
        append_foreign(backend, 0, "x")
        before = all_values(backend), [without_end(each) for each in job_progress(backend, "stream")]
        turned = {0: ["a1", "a0"], 1: ["a2"]}
        with self.reopen(backend) as other:
            assert rows_held(run_batch(other, 0, turned, run="run-2", task=1)) == {0: 2, 1: 1}
        for changed in ({0: ["a0", "a9"], 1: ["a2"]}, {0: ["a0"], 1: ["a2"]}, {0: ["a0", "a1", "a1"], 1: ["a2"]}):
            with pytest.raises(InputChangedError, match="the replay of batch 0 of job 'stream' has other rows"):
                run_batch(backend, 0, changed, run="run-3")
        with pytest.raises(
            InputChangedError, match=r"partition 1: .* rows of batch 0 .* the replay has none for this"
        ):
            run_batch(backend, 0, {0: ["a0", "a1"]}, run="run-4")
        assert (all_values(backend), [without_end(each) for each in job_progress(backend, "stream")]) == before

    @pytest.mark.parametrize("order_by", [None, ["value"]])
    @pytest.mark.parametrize("cut_off", [False, True])
    @pytest.mark.parametrize("there", [["b1"], ["b2", "b0"], ["b2", "b1"], ["b0", "b1", "b1", "b2"]])
    def test_rows_of_an_attempt_that_was_cut_off_are_not_appended_again(
        self, backend: Backend, there: list[str], order_by: list[str] | None, *, cut_off: bool
    ) -> None:
        limits = WIDE if order_by is None else LIMITS
        run_batch(backend, 0, BATCHES[0], cut_off=True)
        run_cut_off(backend, 1, {0: there}, order_by=order_by, limits=limits)
        append_foreign(backend, 0, "x")
        rows = {0: ["b0", "b1", "b1", "b2"], 2: ["b3"]}
        with self.reopen(backend) as other:
            for run in ("run-2", "run-3"):
                run_batch(other, 1, rows, run=run, cut_off=cut_off, order_by=order_by, limits=limits)
            run_batch(other, 2, BATCHES[2], cut_off=cut_off)
        found = all_values(backend)
        assert sorted(found[0]) == sorted(["a0", "a1", *rows[0], "x"])
        assert (found[1], found[2]) == (["a2", "c0"], ["b3"])

    def test_other_rows_than_an_attempt_that_was_cut_off_has_appended_are_refused(self, backend: Backend) -> None:
        run_cut_off(backend, 0, {0: ["a0", "a9"]})
        append_foreign(backend, 0, "a1")
        before = all_values(backend)
        for rows in (["a0", "a1"], ["a0", "a1", "a2"], ["a9"]):
            with pytest.raises(InputChangedError):
                run_batch(backend, 0, {0: rows}, run="run-2", cut_off=True)
        assert all_values(backend) == before
        run_batch(backend, 0, {0: ["a2", "a9", "a0"]}, run="run-2")
        assert all_values(backend)[0] == [*before[0], "a2"]

    @pytest.mark.parametrize("order_by", [(), ["value"]])
    def test_attempt_that_was_cut_off_after_one_with_end_markers_is_completed(
        self, backend: Backend, order_by: Sequence[str]
    ) -> None:
        """The frame of the second attempt has no end markers, so that attempt does not know that it was cut off."""
        run_batch(backend, 0, {0: SORTED}, order_by=order_by)
        with pytest.raises(InjectedFaultError):
            run_batch(FaultyLog(backend, Fault("append", 1, When.AFTER)), 1, {0: SORTED}, order_by=order_by)
        append_foreign(backend, 0, "x")
        run_cut_off(backend, 1, {0: [*SORTED[:3], *SORTED[4:6]]} if order_by else {0: SORTED[:5]}, order_by=order_by)
        run_batch(backend, 1, {0: SORTED}, order_by=order_by, run="run-2", cut_off=True)
        run_batch(backend, 2, BATCHES[1], run="run-2", cut_off=True, limits=WIDE)
        assert sorted(values_in(backend, 0)) == sorted(["x", *SORTED, *SORTED, *BATCHES[1][0]])

    @pytest.mark.parametrize(
        "now", [{1: ["b0"], 2: ["b1"]}, {2: ["b0", "b1"]}, {}], ids=["apart", "together", "empty"]
    )
    def test_replayed_batch_with_rows_in_other_partitions_is_rejected(self, backend: Backend, now: Rows) -> None:
        """The new partitions have no rows of this batch, or there are none. Only missing rows show the difference."""
        run_batch(backend, 0, BATCHES[0])
        faulty = FaultyLog(backend, Fault("append", 2, When.BEFORE))
        with pytest.raises(InjectedFaultError):
            run_batch(faulty, 1, {0: ["b0"], 2: ["b1"]})
        again = (
            r"partition 0: .* holds rows of batch 1 of job 'stream', but the replay has none .* twice.* Of batch 1"
        )
        for run in ("run-2", "run-3"):
            with pytest.raises(InputChangedError, match=again):
                run_batch(backend, 1, now, run=run)

    def test_a_batch_without_rows_where_the_log_holds_a_later_one_is_refused(self, backend: Backend) -> None:
        run_all(backend)
        for rows in ({}, {2: ["c0"]}):
            with pytest.raises(InputChangedError) as raised:
                run_batch(backend, 2, rows, run="run-2")
            assert raised.value.partition == 1
        with pytest.raises(
            CheckpointMismatchError, match=r"partition 0: .* of batch 1 .* written batch 0.* is older"
        ):
            run_batch(backend, 0, {}, run="run-3")

    def test_batch_out_of_order_is_rejected(self, backend: Backend) -> None:
        run_all(backend)
        before = all_values(backend)
        with raises(CheckpointMismatchError, partition=0, job="stream"):
            run_batch(backend, 0, BATCHES[0], run="run-2")
        with pytest.raises(JobMismatchError, match="the checkpoint was deleted"):
            run_batch(backend, 0, BATCHES[0], query="another", run="run-2")
        with pytest.raises(JobMismatchError, match="is a stream, and its name was now given to a load"):
            run_job(backend, "stream", BATCHES[0], expected="none")
        run_job(backend, "load", BATCHES[0])
        with pytest.raises(JobMismatchError, match="is a load, and its name was now given to a stream"):
            run_batch(backend, 0, BATCHES[0], job="load", expected="end")
        with pytest.raises(JobMismatchError, match="without expected offsets"):
            run_batch(backend, 3, {0: ["d"]}, expected="end")
        assert all_values(backend) == {each: before[each] + BATCHES[0].get(each, []) for each in before}

    @pytest.mark.parametrize(
        ("number", "query", "error"), [(1, "other", JobMismatchError), (1, "q", CheckpointMismatchError)]
    )
    def test_no_task_appends_a_batch_out_of_order(
        self, backend: Backend, number: int, query: str, error: type[Exception]
    ) -> None:
        """The first task's partition has no ledger entry of the other query or of the restored checkpoint."""
        for earlier in range(3):
            run_tasks(backend, earlier, {1: [f"r{earlier}"]})
        with pytest.raises(error, match=rf"partition 1: .* No row of batch {number} was appended now\. "):
            run_tasks(backend, number, {0: ["r3"], 1: ["r1", "r2"]}, query=query, run="run-2")
        assert all_values(backend) == {0: [], 1: ["r0", "r1", "r2"], 2: []}
        run_tasks(backend, 3, {0: ["r3"]}, run="run-3")
        assert all_values(backend) == {0: ["r3"], 1: ["r0", "r1", "r2"], 2: []}

    def test_rejected_batch_reports_appends_of_its_other_tasks(self, backend: Backend) -> None:
        """As with a copied checkpoint, the batch has the same number and other rows."""
        run_tasks(backend, 0, {1: ["r1"]})
        told = (
            r"partition 1: .* other rows\. .* Of batch 0 the log holds 2 rows in partition 0, 1 rows in partition 1,"
        )
        with pytest.raises(InputChangedError, match=told + " and these stay. With another job name or checkpoint"):
            run_tasks(backend, 0, {0: ["r3", "r4"], 1: ["r1", "r2"]}, run="run-2")
        assert all_values(backend) == {0: ["r3", "r4"], 1: ["r1"], 2: []}

    def test_rejected_batch_reports_unknown_appends_if_the_log_fails(self, backend: Backend) -> None:
        def not_now() -> None:
            raise StorageError("not now")

        log = FaultyLog(backend, *(Fault("progress_of", call, When.BEFORE, not_now) for call in (1, 2, 3)))
        run_tasks(backend, 1, {1: ["r1"]})
        with pytest.raises(CheckpointMismatchError, match=r"partition 1: .* not known which rows of batch 0"):
            run_tasks(log, 0, {0: ["r0"], 1: ["r1"]}, run="run-2")
        assert values_in(backend, 0) == ["r0"], "the early check has failed, so it rejects nothing"

    @pytest.mark.parametrize("when", list(When), ids=lambda when: when.name.lower())
    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_query_killed_at_any_call_ends_with_each_row_once(
        self, new_backend: Callable[[], Backend], operation: str, when: When
    ) -> None:
        """The last started batch is replayed, as from a checkpoint. Earlier batches are not."""
        with new_backend() as backend:
            backend.create(self.partitions)
            counting = FaultyLog(backend)
            run_all(counting)
        for call in CrashContract.spread(counting.calls[operation], self.crashes):
            with new_backend() as backend:
                backend.create(self.partitions)
                faulty = FaultyLog(backend, Fault(operation, call, when))
                checkpoint = [0]
                with pytest.raises(InjectedFaultError):
                    run_all(faulty, checkpoint=checkpoint)
                run_all(backend, run="run-2", checkpoint=checkpoint)
                assert all_values(backend) == appended(*BATCHES)

    def test_killed_batch_of_several_chunks_resumes(self, backend: Backend) -> None:
        run_batch(backend, 0, {0: ["-"]}, expected="end")
        for chunks in (1, 2):
            killed(backend, 1, LONG, run=f"run-{chunks}")
            assert values_in(backend, 0) == ["-", *SORTED[: 3 * chunks]]
        with pytest.raises(OptionError, match=r"first 6 rows of batch 1\. .* Set orderBy as before"):
            run_batch(backend, 1, LONG, expected="end", limits=WIDE, run="run-3")
        for other in ({0: ["00", *LONG[0][1:]]}, {0: LONG[0][:6]}, {0: SORTED[:6]}):
            with pytest.raises(InputChangedError):
                run_ordered(backend, 1, other, run="run-4")
        with raises(CheckpointMismatchError, partition=0, job="stream"):
            run_batch(backend, 2, {0: ["+"]}, expected="end", run="run-5")
        turned = {0: LONG[0][::-1]}
        assert rows_held(run_ordered(backend, 1, turned, run="run-6", limits=WIDE)) == {0: 6}
        run_batch(backend, 2, {0: ["+"]}, expected="end", run="run-6")
        assert values_in(backend, 0) == ["-", *SORTED, "+"]

    def test_a_batch_that_does_not_fit_and_has_no_order_is_refused_whole(self, backend: Backend) -> None:
        with pytest.raises(BatchTooLargeError, match=r"partition 1: .*batch 0 .*orderBy.*maxOffsetsPerTrigger"):
            run_batch(backend, 0, {0: ["a"], 1: LONG[0]})
        assert all_values(backend) == {0: [], 1: [], 2: []}
        run_batch(backend, 0, {0: ["a"], 1: LONG[0]}, limits=WIDE, run="run-2")
        assert all_values(backend) == {0: ["a"], 1: LONG[0], 2: []}, "one chunk, in the order of the rows"

    def test_a_record_larger_than_the_log_takes_is_refused_before_anything_is_appended(
        self, backend: Backend
    ) -> None:
        limits = replace(WIDE, max_record_bytes=50)
        rows = {0: ["a"], 1: ["b", "x" * 50, "c"]}
        with pytest.raises(RecordTooLargeError) as raised:
            run_batch(backend, 0, rows, limits=limits)
        assert (raised.value.partition, raised.value.row) == (1, 1)
        assert all_values(backend) == {0: [], 1: [], 2: []}

    def test_next_attempt_detects_a_batch_with_a_lost_reply(self, backend: Backend) -> None:
        for call, when in [(1, When.BEFORE), (1, When.AFTER), (1, When.AFTER)]:
            run = FaultyLog(backend, Fault("append", call, when), lose_append_replies=True)
            with pytest.raises(UnknownOutcomeError):
                run_batch(run, 0, BATCHES[0], expected="end")
        run_batch(backend, 0, BATCHES[0], expected="end")
        assert all_values(backend) == appended(BATCHES[0])

    def test_end_stops_at_a_foreign_record_and_new_offsets_resume(self, backend: Backend) -> None:
        append_foreign(backend, 0, "x")
        run_batch(backend, 0, BATCHES[0], expected="end")
        append_foreign(backend, 0, "y")
        with pytest.raises(ConflictError):
            run_batch(backend, 1, BATCHES[1], expected="end")
        given = f'{{"0": {backend.bounds(0).end_offset}}}'
        run_batch(backend, 1, BATCHES[1], expected=given, run="run-2")
        run_batch(backend, 2, {0: ["c0"]}, expected=given, run="run-2")
        append_foreign(backend, 0, "z")
        with pytest.raises(ConflictError):
            run_batch(backend, 3, BATCHES[1], expected=given, run="run-2")
        assert values_in(backend, 0) == ["x", "a0", "a1", "y", "b0", "b1", "b2", "c0", "z"]

    def test_none_accepts_foreign_records_at_any_time(self, backend: Backend) -> None:
        """A missing ledger entry in a partition without rows of the stream must not appear as a loss."""
        for number, rows in enumerate(BATCHES):
            for partition in range(3):
                append_foreign(backend, partition, "x")
            faulty = FaultyLog(backend, Fault("append", 1, When.BEFORE, lambda: append_x(backend)))
            run_batch(faulty, number, rows, run=f"run-{number}")
        for partition, values in appended(*BATCHES).items():
            assert [value for value in values_in(backend, partition) if value != "x"] == values

    def test_none_resumes_after_a_batch_that_replaced_earlier_ones(self, backend: Backend) -> None:
        """The only ledger entry is of this batch by then."""
        run_batch(backend, 0, {0: ["a"]})
        append_foreign(backend, 1, "x")
        run_batch(backend, 1, {0: ["b"], 1: ["c"]})
        assert all_values(backend) == {0: ["a", "b"], 1: ["x", "c"], 2: []}

    def test_none_works_if_each_task_begins_the_stream(self, backend: Backend) -> None:
        """As without a job name: the second task starts after the first has appended."""
        wanted = ExpectedOffsets.parse("none")
        plans = [begin_stream(backend, "q", wanted, partition=partition) for partition in range(3)]
        for partition, plan in enumerate(plans):
            append_foreign(backend, partition, "x")
            rows = batches_of({partition: ["a"]}, 2)
            load_batch(backend, plan, Batch("q", 0), rows, task=f"run/{partition}", limits=WIDE)
        assert all_values(backend) == {partition: ["x", "a"] for partition in range(3)}

    @pytest.mark.parametrize("fault", [("append", 2), ("record_plan", 1), ("append", 1)], ids=str)
    def test_none_resumes_after_a_kill_in_the_first_batch(self, backend: Backend, fault: tuple[str, int]) -> None:
        """The crash is before the ledger entry, or in the second of three partitions. Other jobs append meanwhile."""
        with pytest.raises(InjectedFaultError):
            run_batch(FaultyLog(backend, Fault(*fault, When.AFTER)), 0, {0: ["a"], 1: ["b"], 2: ["c"]})
        for partition in range(3):
            append_foreign(backend, partition, "x")
        run_batch(backend, 0, {0: ["a"], 1: ["b"], 2: ["c"]}, run="run-2")
        assert [sorted(values) for values in all_values(backend).values()] == [["a", "x"], ["b", "x"], ["c", "x"]]

    def test_a_second_task_with_rows_of_the_same_partition_is_refused(self, backend: Backend) -> None:
        run_batch(backend, 0, {0: ["a"]}, task=0)
        run_batch(backend, 1, {0: ["b"]}, task=1)
        with pytest.raises(NotRoutedError) as raised:
            run_batch(backend, 1, {0: ["c"]}, task=2)
        assert raised.value.partition == 0
        assert values_in(backend, 0) == ["a", "b"]

    def test_fenced_attempt_of_a_batch_returns_the_result_of_the_other(self, backend: Backend) -> None:
        for call in (1, 2, 3, 4):
            faulty = FaultyLog(backend, Fault("append", call, When.BEFORE, partial(overtake, backend, call)))
            (result,) = run_ordered(faulty, call, LONG)
            (progress,) = job_progress(backend, "stream")
            assert without_end(result.progress) == without_end(progress)
        faulty = FaultyLog(backend, Fault("append", 2, When.BEFORE, partial(overtake, backend, 5)))
        with pytest.raises(InputChangedError) as raised:
            run_ordered(faulty, 5, {0: [*SORTED[:3], "x", *SORTED[4:]]})
        assert raised.value.job == "stream"
        assert values_in(backend, 0) == SORTED * 5

    def test_a_fenced_attempt_at_a_batch_gives_up_when_the_other_one_is_dead(self, backend: Backend) -> None:
        faulty = FaultyLog(backend, Fault("append", 2, When.BEFORE, partial(killed, backend, 0, LONG)))
        with pytest.raises(FencedError) as raised:
            run_ordered(faulty, 0, LONG, wait=0.0)
        assert raised.value.partition == 0
        run_ordered(backend, 0, LONG)
        assert values_in(backend, 0) == SORTED

    def test_two_runs_of_one_batch_at_once(self, backend: Backend) -> None:
        def attempt(log: Backend, number: int, run: str) -> bool:
            try:
                run_batch(log, number, {0: [f"{number}"], 1: [f"{number}"]}, run=run, wait=5.0)
            except FencedError:
                return False
            return True

        rounds = max(self.rounds // 40, 3)
        with self.reopen(backend) as other:
            begin = ExpectedOffsets.parse("none")
            assert pin_plan(backend, "stream", begin, stream=True) == pin_plan(other, "stream", begin, stream=True)
            for number in range(rounds):
                done = at_once(partial(attempt, backend, number, "run-1"), partial(attempt, other, number, "run-2"))
                assert any(done) or attempt(backend, number, "run-3")
                attempt(backend, number, "run-4")
        assert values_in(backend, 0) == values_in(backend, 1) == [f"{number}" for number in range(rounds)]


def append_x(log: Backend) -> None:
    """Append a record as another writer."""
    append_foreign(log, 0, "x")


def overtake(log: Backend, number: int) -> None:
    """Complete a batch in another run."""
    run_ordered(log, number, LONG, run="run-2")
