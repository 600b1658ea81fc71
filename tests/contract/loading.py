"""Complete loads through the protocol: plan, rows, completion."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import pyarrow as pa
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import (
    ConflictError,
    FencedError,
    InputChangedError,
    MissingRowsError,
    TruncatedError,
    UnknownOutcomeError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import PartitionResult
from spark_cas.core.records import record_sizes
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, fresh_job_name, job_results, pin_plan
from tests.contract.base import ContractBase, at_once, eager_switching
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import (
    LIMITS,
    TEN,
    Rows,
    batches_of,
    crash_after_chunks,
    edited,
    load,
    rows_of,
    run_job,
)
from tests.support.writing import JobWriter, append_foreign, plan_of, records_in, table_of, values_in, without_end

END = ExpectedOffsets.parse("end")


class LoadContract(ContractBase):
    """Each row of a job is stored exactly once and in order, or the job is rejected and the log has a prefix."""

    def test_a_whole_load(self, backend: Backend) -> None:
        append_foreign(backend, 1, "x")
        rows = rows_of(7, 0, 1)
        done = run_job(backend, "job", rows)
        assert values_in(backend, 0) == rows[0]
        assert values_in(backend, 1) == ["x", *rows[1]]
        assert values_in(backend, 2) == []
        assert done.rows == len(rows[0]) + len(rows[1])
        assert [without_end(result.progress) for result in done.partitions] == [
            without_end(backend.progress(partition, "job")) for partition in (0, 1)
        ]
        for result in done.partitions:
            assert (result.progress.rows, result.progress.chunks, result.progress.complete) == (7, 3, True)
            assert (result.resumed_rows, result.resolved, result.progress.task) == (0, 0, "run/0")
            said = result.appends
            assert (said.attempts, said.aborted_rows, said.start_offset, said.has_offset) == (3, 0, 0, True)
            assert said.has_timestamp
        assert backend.completion("job") == done
        assert backend.jobs() == ("job",)

    @pytest.mark.parametrize("mode", ["end", "none", '{"0": 1, "1": null}'])
    def test_the_same_job_again_appends_nothing(self, backend: Backend, mode: str) -> None:
        append_foreign(backend, 0, "x")
        rows = rows_of(7, 0, 1)
        done = run_job(backend, "job", rows, expected=mode)
        append_foreign(backend, 0, "y")
        before = [records_in(backend, partition) for partition in (0, 1)]
        with self.reopen(backend) as other:
            again = run_job(other, "job", rows, expected=mode, run="run-2", size=5)
            results = load(other, pin_plan(other, "job", ExpectedOffsets.parse(mode)), rows, task="run-3/0")
        assert again == done
        found, completed = ([without_end(each.progress) for each in some] for some in (results, done.partitions))
        assert found == completed
        assert [result.resumed_rows for result in results] == [7, 7]
        assert [records_in(backend, partition) for partition in (0, 1)] == before

    def test_running_job_reports_only_the_ledger(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", TEN, 2)
        (result,) = job_results(backend, "job")
        assert result == PartitionResult(result.progress, resumed_rows=None, resolved=None)
        assert (result.progress.rows, result.progress.complete) == (6, False)

    def test_an_input_without_rows(self, backend: Backend) -> None:
        done = run_job(backend, "job", {})
        assert (done.rows, done.partitions) == (0, ())
        assert run_job(backend, "job", {0: []}, run="run-2") == done

    def test_batches_without_rows_change_nothing(self, backend: Backend) -> None:
        empty = table_of([]).combine_chunks().to_batches() or [table_of("a").to_batches()[0].slice(0, 0)]
        plan = pin_plan(backend, "job", END)
        batches = [(1, empty[0]), *batches_of(TEN, 4), (0, empty[0]), (2, empty[0])]
        results = append_rows(backend, plan, batches, task="run/0", limits=LIMITS)
        assert [result.progress.partition for result in results] == [0]
        assert values_in(backend, 0) == TEN[0]
        assert run_job(backend, "job", TEN, run="run-2").rows == len(TEN[0])

    @pytest.mark.parametrize("mode", ["end", "none"])
    @pytest.mark.parametrize("chunks", [1, 2, 3, 4])
    @pytest.mark.parametrize("size", [1, 3, 10])
    def test_killed_job_resumes(self, backend: Backend, chunks: int, size: int, mode: str) -> None:
        append_foreign(backend, 0, "x")
        crash_after_chunks(backend, "job", TEN, chunks, expected=mode)
        done = run_job(backend, "job", TEN, expected=mode, run="run-2", size=size)
        assert values_in(backend, 0) == ["x", *TEN[0]]
        (result,) = done.partitions
        assert result.resumed_rows == min(10, 3 * chunks)
        assert result.appends.attempts == (4 - chunks or None), "only the chunks of this run"
        assert job_results(backend, "job") == done.partitions
        assert (result.progress.rows, result.progress.complete) == (10, True)
        fresh = JobWriter(backend, plan_of(backend, "another")).chunk(table_of(TEN[0]))
        assert result.progress.digest == fresh.digest

    @pytest.mark.parametrize("rows", [1, 3, 4, 9])
    def test_attempt_that_may_have_been_cut_off_completes_no_partition(self, backend: Backend, rows: int) -> None:
        plan = pin_plan(backend, "job", END)
        part = {0: TEN[0][:rows]}
        (result,) = load(backend, plan, part, has_end=False)
        assert (result.progress.rows, result.progress.complete) == (rows, False)
        assert values_in(backend, 0) == part[0]
        (result,) = load(backend, plan, TEN, task="run/0", has_end=False)
        assert (result.progress.rows, result.progress.complete) == (10, False)
        (completed,) = complete_job(backend, plan, (result,)).partitions
        assert completed.progress.complete, "the driver knows that all tasks have ended"
        assert values_in(backend, 0) == TEN[0]

    def test_attempt_that_was_cut_off_before_the_existing_rows_reports_it(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", TEN, 2)
        plan, part = pin_plan(backend, "job", END), {0: TEN[0][:5]}
        with pytest.raises(MissingRowsError):
            load(backend, plan, part, task="run/0", has_end=False)
        with pytest.raises(InputChangedError) as caught:
            load(backend, plan, part, task="run/0")
        assert type(caught.value) is InputChangedError

    def test_attempt_that_was_cut_off_reports_the_rows_of_the_attempt_that_fenced_it(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", END)

        def rows() -> Iterator[tuple[int, pa.RecordBatch]]:
            yield from batches_of({0: TEN[0][:4]}, 4)
            with self.reopen(backend) as other:
                load(other, plan, TEN, task="run/0", has_end=False)

        with pytest.raises(MissingRowsError):
            append_rows(backend, plan, rows(), task="run/0", limits=LIMITS, has_end=False)
        assert values_in(backend, 0) == TEN[0]

    def test_many_partitions_in_one_task_with_bounded_buffers(self, backend: Backend) -> None:
        rows = rows_of(60, 0, 1, 2)
        size = int(record_sizes(table_of(["0.10"]).to_batches()[0])[0])
        limits = ChunkLimits(max_records=1_000, max_bytes=10 * size, max_seconds=1_000)
        given = 0

        def watched() -> Iterator[tuple[int, pa.RecordBatch]]:
            nonlocal given
            for partition, batch in batches_of(rows, 4):
                appended = sum(len(values_in(backend, each)) for each in range(3))
                assert (given - appended) * size <= 2 * limits.max_bytes
                given += batch.num_rows
                yield partition, batch

        results = append_rows(backend, pin_plan(backend, "job", END), watched(), task="run/0", limits=limits)
        assert [result.progress.rows for result in results] == [60, 60, 60]
        assert [values_in(backend, partition) for partition in range(3)] == list(rows.values())

    def test_conflict_leaves_a_prefix_and_new_offsets_resume(self, backend: Backend) -> None:
        def foreign() -> None:
            append_foreign(backend, 0, "x", "y")

        with pytest.raises(ConflictError) as raised:
            run_job(FaultyLog(backend, Fault("append", 2, When.BEFORE, foreign)), "job", TEN)
        assert (raised.value.partition, raised.value.expected_offset in (3, 4)) == (0, True)
        assert values_in(backend, 0) == [*TEN[0][:3], "x", "y"]
        for run in ("run-2", "run-3"):
            with pytest.raises(ConflictError) as raised:
                run_job(backend, "job", TEN, run=run)
            assert raised.value.expected_offset == 3
        assert values_in(backend, 0) == [*TEN[0][:3], "x", "y"]

        given = f'{{"0": {backend.bounds(0).end_offset}}}'
        crash_after_chunks(backend, "job", TEN, 1, expected=given, run="run-4")
        crash_after_chunks(backend, "job", TEN, 1, expected=given, run="run-5")
        done = run_job(backend, "job", TEN, expected=given, run="run-6")
        expected = [*TEN[0][:3], "x", "y", *TEN[0][3:]]
        assert values_in(backend, 0) == expected
        append_foreign(backend, 0, "z")
        assert run_job(backend, "job", TEN, expected=given, run="run-7") == done
        assert run_job(backend, "job", TEN, run="run-8") == done
        assert values_in(backend, 0) == [*expected, "z"]

    def test_wrong_expected_offset_can_be_corrected(self, backend: Backend) -> None:
        append_foreign(backend, 0, "x")
        with pytest.raises(TruncatedError) as lost:
            run_job(backend, "job", TEN, expected='{"0": 17}')
        assert lost.value.expected_offset == 17
        with pytest.raises(ConflictError) as raised:
            run_job(backend, "job", TEN, expected='{"0": 0}')
        assert raised.value.expected_offset == 0
        run_job(backend, "job", TEN, expected=f'{{"0": {backend.bounds(0).end_offset}}}')
        assert values_in(backend, 0) == ["x", *TEN[0]]

    def test_without_check_every_row_is_there_once_among_foreign_ones(self, backend: Backend) -> None:
        def foreign() -> None:
            append_foreign(backend, 0, "x")

        faults = [Fault("append", call, When.BEFORE, foreign) for call in (1, 2, 4)]
        crash = Fault("append", 3, When.AFTER)
        with pytest.raises(InjectedFaultError):
            run_job(FaultyLog(backend, *faults, crash), "job", TEN, expected="none")
        run_job(FaultyLog(backend, *faults), "job", TEN, expected="none", run="run-2")
        assert [value for value in values_in(backend, 0) if value != "x"] == TEN[0]
        assert values_in(backend, 0).count("x") == len(faults)

    def test_a_lost_reply_is_unknown_and_a_retry_finds_the_rows(self, backend: Backend) -> None:
        for call, when in [(1, When.BEFORE), (1, When.AFTER), (2, When.AFTER), (1, When.AFTER)]:
            faulty = FaultyLog(backend, Fault("append", call, when), lose_append_replies=True)
            with pytest.raises(UnknownOutcomeError):
                run_job(faulty, "job", TEN)
        run_job(backend, "job", TEN)
        assert values_in(backend, 0) == TEN[0]

    @pytest.mark.parametrize("task", ["run/0", "run-2/0"])
    @pytest.mark.parametrize("size", [1, 2, 4, 10])
    @pytest.mark.parametrize("call", [1, 2, 3, 4])
    def test_fenced_attempt_returns_the_result_of_the_other(
        self, backend: Backend, call: int, size: int, task: str
    ) -> None:
        plan = pin_plan(backend, "job", END)
        winner: list[PartitionResult] = []

        def overtake() -> None:
            winner.extend(load(backend, plan, TEN, task=task))

        faulty = FaultyLog(backend, Fault("append", call, When.BEFORE, overtake))
        (result,) = load(faulty, plan, TEN, size=size)
        assert result.progress == backend.progress(0, "job")
        assert without_end(result.progress) == without_end(winner[0].progress)
        assert values_in(backend, 0) == TEN[0]
        assert faulty.calls["claim"] == 1, "a fenced attempt never claims again"

    def test_a_fenced_attempt_gives_up_when_the_other_one_is_dead(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", END)

        def overtake_and_die() -> None:
            with pytest.raises(InjectedFaultError):
                load(FaultyLog(backend, Fault("append", 1, When.AFTER)), plan, TEN)

        faulty = FaultyLog(backend, Fault("append", 2, When.BEFORE, overtake_and_die))
        with pytest.raises(FencedError) as raised:
            load(faulty, plan, TEN, wait=0.0)
        assert raised.value.partition == 0
        load(backend, plan, TEN)
        assert values_in(backend, 0) == TEN[0]

    def test_fenced_attempt_does_not_wait_after_a_conflict_with_another_job(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", END)

        def overtake_and_die() -> None:
            with pytest.raises(InjectedFaultError):
                load(FaultyLog(backend, Fault("append", 1, When.AFTER)), plan, TEN)
            append_foreign(backend, 0, "x")

        faulty = FaultyLog(backend, Fault("append", 2, When.BEFORE, overtake_and_die))
        with pytest.raises(ConflictError) as raised:
            load(faulty, plan, TEN, wait=3600.0)
        assert raised.value.partition == 0
        assert values_in(backend, 0) == [*TEN[0][:6], "x"]

    def test_a_fenced_attempt_does_not_take_its_own_jobs_rows_for_anothers(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", END)

        def overtake() -> None:
            with pytest.raises(InjectedFaultError):
                load(FaultyLog(backend, Fault("append", 1, When.AFTER)), plan, TEN)

        def go_on() -> None:
            load(backend, plan, TEN)

        faults = Fault("append", 2, When.BEFORE, overtake), Fault("bounds_of", 1, When.BEFORE, go_on)
        (result,) = load(FaultyLog(backend, *faults), plan, TEN)
        assert result.progress == backend.progress(0, "job")
        assert values_in(backend, 0) == TEN[0]

    def test_a_partition_is_claimed_when_there_is_a_chunk_for_it(self, backend: Backend) -> None:
        log, given = FaultyLog(backend), 0

        def watched() -> Iterator[tuple[int, pa.RecordBatch]]:
            nonlocal given
            for partition, batch in batches_of(TEN, 2):
                assert log.calls["claim"] == (given > LIMITS.max_records)
                given += batch.num_rows
                yield partition, batch

        append_rows(log, pin_plan(backend, "job", END), watched(), task="run/0", limits=LIMITS)
        assert (given, log.calls["claim"]) == (10, 1)

    @pytest.mark.parametrize("chunks", [1, 2, 4])
    @pytest.mark.parametrize("buffered", [1, 3, 9])
    @pytest.mark.parametrize("changed", [False, True])
    def test_rows_of_another_attempt_are_verified_and_skipped(
        self, backend: Backend, buffered: int, chunks: int, *, changed: bool
    ) -> None:
        plan = pin_plan(backend, "job", END)
        limits = ChunkLimits(max_records=buffered, max_bytes=1_000_000, max_seconds=1_000)

        def meanwhile() -> Iterator[tuple[int, pa.RecordBatch]]:
            for number, each in enumerate(batches_of(edited(0, "changed") if changed else TEN, 1), 1):
                if number == buffered:
                    crash_after_chunks(backend, "job", TEN, chunks)
                yield each

        with pytest.raises(InputChangedError) if changed else nullcontext():
            append_rows(backend, plan, meanwhile(), task="run-2/0", limits=limits)
        assert values_in(backend, 0) == (TEN[0][: 3 * chunks] if changed else TEN[0])

    def test_fenced_attempt_reports_other_rows(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", END)

        def overtake() -> None:
            load(backend, plan, edited(9, "other"), task="run-2/0")

        with pytest.raises(InputChangedError, match="another attempt"):
            load(FaultyLog(backend, Fault("append", 2, When.BEFORE, overtake)), plan, TEN)
        assert values_in(backend, 0) == edited(9, "other")[0]

    @pytest.mark.parametrize("mode", ["end", "none"])
    @pytest.mark.parametrize("tasks", [("run/0", "run/0"), ("run-1/0", "run-2/0")])
    def test_two_loads_of_one_job_at_once(self, backend: Backend, tasks: tuple[str, str], mode: str) -> None:
        def attempt(log: Backend, job: str, task: str) -> tuple[PartitionResult, ...] | None:
            try:
                return load(log, pin_plan(log, job, ExpectedOffsets.parse(mode)), rows, task=task)
            except FencedError:
                return None

        before: Rows = {0: [], 1: []}
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(max(self.rounds // 20, 3)):
                job = f"job-{round_}"
                rows = {partition: [f"{job}.{at}" for at in range(8)] for partition in (0, 1)}
                results = at_once(partial(attempt, backend, job, tasks[0]), partial(attempt, other, job, tasks[1]))
                now = [without_end(backend.progress(partition, job)) for partition in (0, 1)]
                finished = [result for result in results if result is not None]
                if self.claims_fence and not finished:
                    finished = [result for result in [attempt(backend, job, tasks[0])] if result is not None]
                    now = [without_end(backend.progress(partition, job)) for partition in (0, 1)]
                assert finished, "one of them is never fenced"
                for result in finished:
                    assert [without_end(each.progress) for each in result] == now
                before = {partition: before[partition] + rows[partition] for partition in (0, 1)}
                assert {partition: values_in(other, partition) for partition in (0, 1)} == before

    def test_generated_job_names_differ(self, backend: Backend) -> None:
        names = [fresh_job_name() for _ in range(50)]
        assert len(set(names)) == len(names)
        assert pin_plan(backend, names[0], END).job == names[0]
