"""Atomic micro-batches: a batch is visible in all its partitions or in none, exactly once, despite replays."""

from dataclasses import replace
from functools import partial

import pytest

from spark_cas.core.errors import (
    CheckpointMismatchError,
    ConflictError,
    FencedError,
    InputChangedError,
    JobMismatchError,
    LayoutChangedError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import cap_wait_on_others
from spark_cas.log.expanding import expand_log
from spark_cas.log.jobs import forget_job
from spark_cas.log.load.append_micro_batch import begin_stream, complete_batch, load_batch
from spark_cas.log.load.atomic_load import abort_group, with_group
from spark_cas.log.load.locking import Applicant, abort_job, acquire_lock, release_lock
from spark_cas.log.load.planning import job_progress
from tests.contract.base import ContractBase
from tests.contract.locking import dead_process
from tests.contract.streaming import BATCHES, SORTED, WIDE, appended
from tests.contract.whole import everything
from tests.support.batches import run_batch, run_cut_off
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import LIMITS, Rows, batches_of
from tests.support.raising import raises
from tests.support.writing import append_foreign

FIRST, SECOND, _ = BATCHES
NOTHING: Rows = {0: [], 1: [], 2: []}
STEPS = [("append", 1), ("append", 2), ("put_entry", 1)]
"""Rows of two partitions, one chunk each. `put_entry` records the outcome."""

run_whole = partial(run_batch, whole=True)


def begin(log: Backend, number: int, expected: str = "none") -> Plan:
    """Return the plan of a stream for one of its batches."""
    return with_group(log, begin_stream(log, "stream", ExpectedOffsets.parse(expected), whole=True), number)


def tasks(log: Backend, plan: Plan, number: int, rows: Rows, run: str = "run") -> tuple[PartitionResult, ...]:
    """Run the tasks of a batch one after the other and return their results."""
    results: list[PartitionResult] = []
    for each in sorted(rows):
        pairs = batches_of({each: rows[each]}, 2)
        results += load_batch(log, plan, Batch("q", number), pairs, task=f"{run}/{each}", limits=WIDE)
    return tuple(results)


class WholeStreamContract(ContractBase):
    """Readers see all rows of a batch or none. For backends with commit groups."""

    @pytest.mark.parametrize("expected", ["none", "end"])
    def test_a_batch_is_visible_once_all_of_it_is(self, backend: Backend, expected: str) -> None:
        with self.reopen(backend) as other:
            for number, rows in enumerate(BATCHES):
                plan = begin(backend, number, expected)
                results = tasks(backend, plan, number, rows)
                assert everything(other) == appended(*BATCHES[:number])
                complete_batch(backend, plan, Batch("q", number), results)
                assert everything(other) == appended(*BATCHES[: number + 1])
            assert [each.rows for each in job_progress(other, "stream")] == [5, 2, 1]

    def test_rows_of_an_attempt_that_was_cut_off_never_become_visible(self, backend: Backend) -> None:
        run_cut_off(backend, 0, {0: ["a1"]}, whole=True)
        with pytest.raises(FencedError):
            run_whole(backend, 0, FIRST, run="run-2", cut_off=True)
        assert everything(backend) == appended()
        run_whole(backend, 0, FIRST, run="run-3", cut_off=True)
        assert everything(backend) == appended(FIRST)

    @pytest.mark.parametrize("expected", ["end", pytest.param("none", marks=pytest.mark.full)])
    @pytest.mark.parametrize("aborted", [False, True])
    @pytest.mark.parametrize("when", list(When))
    @pytest.mark.parametrize(("step", "call"), STEPS)
    def test_a_batch_killed_at_any_step_is_nothing_and_then_all(
        self, backend: Backend, step: str, call: int, when: When, expected: str, *, aborted: bool
    ) -> None:
        run_whole(backend, 0, FIRST, expected=expected)
        with self.reopen(backend) as killed, pytest.raises(InjectedFaultError):
            run_whole(FaultyLog(killed, Fault(step, call, when)), 1, SECOND, expected=expected)
        decided = step == "put_entry" and when is When.AFTER
        assert everything(backend) == appended(*([FIRST, SECOND] if decided else [FIRST]))
        with self.reopen(backend) as other:
            if aborted:
                abort_group(other, begin(other, 1, expected))
            run_whole(other, 1, SECOND, expected=expected, run="again")
            run_whole(other, 2, BATCHES[2], expected=expected, run="again")
        assert everything(backend) == appended(*BATCHES)

    def test_a_batch_refused_in_one_partition_leaves_nothing_in_the_others(self, backend: Backend) -> None:
        run_whole(backend, 0, FIRST, expected="end")
        plan = begin(backend, 1, "end")
        append_foreign(backend, 2, "in between")
        with pytest.raises(ConflictError) as raised:
            tasks(backend, plan, 1, SECOND)
        assert raised.value.partition == 2
        abort_group(backend, plan)
        assert everything(backend) == appended(FIRST) | {2: ["in between"]}

    def test_replayed_atomic_batch_is_verified(self, backend: Backend) -> None:
        run_whole(backend, 0, FIRST)
        with self.reopen(backend) as other:
            held = run_whole(other, 0, FIRST, run="again")
            assert [each.resumed_rows for each in held] == [2, 1]
            with pytest.raises(InputChangedError) as raised:
                run_whole(other, 0, FIRST | {1: ["x"]}, run="changed")
            assert raised.value.job == "stream"
            with pytest.raises(InputChangedError) as raised:
                run_whole(other, 0, {0: FIRST[0]}, run="fewer")
            assert raised.value.partition == 1
            run_whole(other, 1, SECOND)
            with pytest.raises(CheckpointMismatchError):
                run_whole(other, 0, FIRST, run="late")
        assert everything(backend) == appended(FIRST, SECOND)

    def test_rows_of_an_earlier_attempt_are_never_visible(self, backend: Backend) -> None:
        with self.reopen(backend) as killed:
            tasks(killed, begin(killed, 0), 0, FIRST)
        with self.reopen(backend) as other:
            run_whole(other, 0, {0: FIRST[0]}, run="again")
            run_whole(other, 1, SECOND)
        assert everything(backend) == appended({0: FIRST[0]}, SECOND)

    def test_aborted_batch_is_not_committed_and_restarts(self, backend: Backend) -> None:
        plan = begin(backend, 0)
        results = tasks(backend, plan, 0, FIRST)
        with self.reopen(backend) as other:
            abort_group(other, plan)
            with pytest.raises(FencedError, match="batch 0 of job 'stream' was aborted"):
                complete_batch(backend, plan, Batch("q", 0), results)
            assert everything(other) == NOTHING
            assert begin(other, 0).group != plan.group
            run_whole(other, 0, FIRST)
            assert everything(backend) == FIRST | {2: []}

    def test_ordered_batch_resumes_after_a_killed_attempt(self, backend: Backend) -> None:
        ordered = partial(run_whole, order_by=["value"], limits=LIMITS)
        rows: Rows = {0: SORTED, 1: ["a"]}
        with self.reopen(backend) as killed, pytest.raises(InjectedFaultError):
            ordered(FaultyLog(killed, Fault("append", 2, When.AFTER)), 0, rows)
        assert everything(backend) == NOTHING
        with self.reopen(backend) as other:
            ordered(other, 0, {0: list(reversed(SORTED)), 1: ["a"]}, run="again")
        assert everything(backend) == rows | {2: []}

    def test_a_stream_does_not_become_one_as_a_whole(self, backend: Backend) -> None:
        run_batch(backend, 0, FIRST)
        with raises(JobMismatchError, job="stream"):
            run_whole(backend, 1, SECOND)
        assert everything(backend) == appended(FIRST)

    def test_partitions_that_are_added_end_a_batch_that_is_under_way(self, backend: Backend) -> None:
        run_whole(backend, 0, FIRST)
        plan = begin(backend, 1)
        results = tasks(backend, plan, 1, SECOND)
        with self.reopen(backend) as other:
            expand_log(other, 4)
            with pytest.raises(FencedError):
                complete_batch(backend, plan, Batch("q", 1), results)
            assert everything(other) == appended(FIRST) | {3: []}
            with pytest.raises(LayoutChangedError):
                begin(other, 1)
            run_whole(other, 0, {0: ["b0"], 3: ["b1"]}, job="other")
            assert everything(other) == {0: [*FIRST[0], "b0"], 1: FIRST[1], 2: [], 3: ["b1"]}

    def test_two_runs_of_a_batch_commit_it_once(self, backend: Backend) -> None:
        plan = begin(backend, 0)
        results = tasks(backend, plan, 0, FIRST)
        with self.reopen(backend) as other:
            run_whole(other, 0, FIRST, run="other")
            assert everything(other) == FIRST | {2: []}
        try:
            complete_batch(backend, plan, Batch("q", 0), results)
        except (FencedError, InputChangedError):
            # its transaction was aborted, and the rows of the other run are at other offsets
            assert backend.group_in_process
        run_whole(backend, 1, SECOND)
        assert everything(backend) == appended(FIRST, SECOND)
        assert replace(plan, group="") == replace(begin(backend, 1), group="")

    @pytest.mark.parametrize("way", ["abort", "forget", "takeover"])
    def test_with_the_lock_of_a_dead_batch_its_rows_are_aborted(self, backend: Backend, way: str) -> None:
        """The next holder of the lock, or a user, aborts it. A transaction times out by itself."""
        if backend.group_in_process:
            return
        wanted = ExpectedOffsets("none")
        dead = Applicant("stream", "run/0", dead_process(), batch_id=0)
        assert acquire_lock(backend, dead, wanted, whole=True) is not None
        tasks(backend, begin(backend, 0), 0, FIRST)
        if way == "abort":
            abort_job(backend, "stream")
        elif way == "forget":
            forget_job(backend, "stream", clock.now_ms(), force=True)
        else:
            release_lock(backend, acquire_lock(backend, Applicant("next", "run"), wanted, whole=True))
        with cap_wait_on_others(0):
            append_foreign(backend, 0, "later")
        assert everything(backend) == NOTHING | {0: ["later"]}
