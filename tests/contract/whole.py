"""Atomic loads: readers see all partitions or none at any time, and crashed loads block no other."""

from collections.abc import Mapping

import pytest

from spark_cas.core.errors import ConflictError, FencedError, JobMismatchError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.group import ABORTED
from spark_cas.core.offsets import Bounds
from spark_cas.core.plan import Completion, PartitionResult, Plan
from spark_cas.core.recorded_fields import to_json
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import cap_wait_on_others
from spark_cas.log.expanding import expand_log
from spark_cas.log.jobs import forget_job
from spark_cas.log.load.atomic_load import abort_group, commit_group
from spark_cas.log.load.locking import abort_job
from spark_cas.log.load.planning import complete_job, job_progress, pin_plan
from tests.contract.base import ContractBase
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import Rows, load, rows_of, run_job
from tests.support.writing import JobWriter, append_foreign, plan_of, records_in, values_in

END = ExpectedOffsets("end")
ROWS = rows_of(10, 0, 1, 2)
ALL = 30
STEPS = [("append", 1), ("append", 4), ("append", 9), ("put_entry", 1), ("record_completion", 1)]
"""Rows of three partitions in chunks of three. `put_entry` records the outcome."""


def pin(log: Backend, job: str, expected: str = "end") -> Plan:
    """Plan a run of an atomic load."""
    return pin_plan(log, job, ExpectedOffsets.parse(expected), whole=True)


def run_whole(
    log: Backend, job: str, rows: Rows = ROWS, *, expected: str = "end", run: str = "run", wait: float = 10.0
) -> Completion:
    """Run an atomic load with a task for each partition."""
    plan = pin(log, job, expected)
    return complete_job(log, plan, tasks(log, plan, rows, run, wait))


def tasks(log: Backend, plan: Plan, rows: Rows, run: str = "run", wait: float = 10.0) -> tuple[PartitionResult, ...]:
    """Run the tasks of a load one after the other and return their results."""
    results = (load(log, plan, {each: rows[each]}, task=f"{run}/{each}", wait=wait) for each in sorted(rows))
    return tuple(result for found in results for result in found)


def everything(log: Backend) -> Rows:
    """Return the rows that readers of all partitions see without waiting."""
    partitions = range(log.layout().partitions)
    return _values(log, dict(zip(partitions, log.bounds_of(partitions, waiting=False), strict=True)))


def bounded(log: Backend) -> Rows:
    """Return the rows below the ends that are read in one step, as a bootstrap reads them."""
    partitions = range(log.layout().partitions)
    return _values(log, dict(zip(partitions, log.bounds_of(partitions, waiting=True), strict=True)))


def _values(log: Backend, bounds: Mapping[int, Bounds]) -> Rows:
    return {
        at: [row["value"].decode() for _, records in log.read(at, each.range) for row in records.to_pylist()]
        for at, each in bounds.items()
    }


NOTHING: Rows = {0: [], 1: [], 2: []}


class WholeContract(ContractBase):
    """Readers see all rows of a load or none. For backends with commit groups."""

    def test_nothing_is_visible_until_all_is(self, backend: Backend) -> None:
        with self.reopen(backend) as other:
            plan = pin(backend, "job")
            results = tasks(backend, plan, ROWS)
            assert everything(other) == everything(backend) == NOTHING
            assert job_progress(other, "job") == ()
            assert [each.end_offset for each in other.bounds_of(range(3), waiting=False)] == [0, 0, 0]
            assert complete_job(backend, plan, results).rows == ALL
            assert everything(other) == everything(backend) == ROWS
            assert [each.rows for each in job_progress(other, "job")] == [10, 10, 10]
            assert all(each.complete for each in job_progress(other, "job"))

    def test_appends_after_the_load_continue(self, backend: Backend) -> None:
        run_whole(backend, "first")
        run_job(backend, "second", rows_of(4, 0, 2))
        append_foreign(backend, 1, "foreign")
        run_whole(backend, "third")
        with self.reopen(backend) as other:
            assert everything(other) == {
                0: ROWS[0] + rows_of(4, 0)[0] + ROWS[0],
                1: ROWS[1] + ["foreign"] + ROWS[1],
                2: ROWS[2] + rows_of(4, 2)[2] + ROWS[2],
            }

    def test_refused_in_one_partition_it_leaves_nothing_in_the_others(self, backend: Backend) -> None:
        plan = pin(backend, "job")
        append_foreign(backend, 2, "in between")
        with pytest.raises(ConflictError) as raised:
            tasks(backend, plan, ROWS)
        assert raised.value.partition == 2
        abort_group(backend, plan)
        assert everything(backend) == NOTHING | {2: ["in between"]}
        again = run_whole(backend, "job", expected='{"0": 0, "1": 0, "2": 1}', run="again")
        assert again.rows == ALL
        assert everything(backend) == ROWS | {2: ["in between", *ROWS[2]]}

    @pytest.mark.parametrize("aborted", [False, True])
    @pytest.mark.parametrize("when", list(When))
    @pytest.mark.parametrize(("step", "call"), STEPS)
    def test_killed_at_any_step_it_is_nothing_and_then_all(
        self, backend: Backend, step: str, call: int, when: When, *, aborted: bool
    ) -> None:
        plan = pin(backend, "job")
        faulty = FaultyLog(backend, Fault(step, call, when))
        with pytest.raises(InjectedFaultError):
            complete_job(faulty, plan, tasks(faulty, plan, ROWS))
        with self.reopen(backend) as other:
            decided = step == "record_completion" or (step == "put_entry" and when is When.AFTER)
            assert everything(other) == (ROWS if decided else NOTHING)
            if aborted:
                abort_group(other, plan)
                assert everything(other) == (ROWS if decided else NOTHING)
            assert run_whole(other, "job", run="again").rows == ALL
            assert everything(other) == everything(backend) == ROWS
            assert run_whole(backend, "job", run="third").rows == ALL
            assert everything(backend) == ROWS

    def test_killed_atomic_load_resumes(self, backend: Backend) -> None:
        plan = pin(backend, "job")
        load(backend, plan, {0: ROWS[0]}, task="run/0")
        with self.reopen(backend) as other:
            results = tasks(other, pin(other, "job"), ROWS, "again")
            assert [each.resumed_rows for each in results] == [0 if backend.group_in_process else 10, 0, 0]

    def test_first_abort_decides(self, backend: Backend) -> None:
        plan = pin(backend, "job")
        results = tasks(backend, plan, ROWS)
        with self.reopen(backend) as other:
            abort_group(other, plan)
        with pytest.raises(FencedError, match="was aborted before it was complete"):
            complete_job(backend, plan, results)
        assert everything(backend) == NOTHING
        assert backend.completion("job") is None

    def test_committed_load_is_not_aborted_by_hand(self, backend: Backend) -> None:
        """The driver was killed after the commit, before it recorded the completion."""
        plan = pin(backend, "job")
        commit_group(backend, plan, tasks(backend, plan, ROWS))
        with self.reopen(backend) as other:
            for dry_run in (True, False):
                with pytest.raises(OptionError, match="no undecided rows"):
                    abort_job(other, "job", dry_run=dry_run)
            assert run_whole(other, "job", run="again").rows == ALL
            assert everything(other) == ROWS

    def test_open_load_that_is_forgotten_blocks_no_writer(self, backend: Backend) -> None:
        tasks(backend, pin(backend, "job"), {0: ROWS[0]})
        with self.reopen(backend) as other, cap_wait_on_others(0):
            assert forget_job(other, "job", clock.now_ms(), force=True) == 0
            append_foreign(other, 0, "next")
            assert run_whole(other, "job", run="again").rows == ALL
            assert everything(other) == ROWS | {0: ["next", *ROWS[0]]}

    def test_committed_load_that_is_forgotten_keeps_its_rows(self, backend: Backend) -> None:
        plan = pin(backend, "job")
        commit_group(backend, plan, tasks(backend, plan, ROWS))
        with self.reopen(backend) as other:
            assert forget_job(other, "job", clock.now_ms(), force=True) == ALL
            assert everything(other) == ROWS

    def test_decision_is_idempotent(self, backend: Backend) -> None:
        plan = pin(backend, "job")
        results = tasks(backend, plan, ROWS)
        commit_group(backend, plan, results)
        commit_group(backend, plan, results)
        abort_group(backend, plan)
        assert backend.put_entry("outcome", plan.group, to_json(ABORTED)) != to_json(ABORTED)
        assert everything(backend) == ROWS

    def test_offsets_that_were_expected_before_it_hold_after_it_was_aborted(self, backend: Backend) -> None:
        append_foreign(backend, 0, "a", "b")
        seen = plan_of(backend, "other", '{"0": 2, "1": 0, "2": 0}')
        abandoned = pin(backend, "job")
        tasks(backend, abandoned, ROWS)
        abort_group(backend, abandoned)
        JobWriter(backend, seen).must_append("c")
        assert values_in(backend, 0) == ["a", "b", "c"]
        run_whole(backend, "once-more")
        assert values_in(backend, 0) == ["a", "b", "c", *ROWS[0]]

    def test_expansion_aborts_the_load_and_a_rerun_restarts(self, backend: Backend) -> None:
        plan = pin(backend, "job")
        results = tasks(backend, plan, ROWS)
        expand_log(backend, 5)
        with pytest.raises(FencedError, match="by an expansion"):
            complete_job(backend, plan, results)
        assert everything(backend) == NOTHING | {3: [], 4: []}

    def test_trim_skips_aborted_rows(self, backend: Backend) -> None:
        run_whole(backend, "first")
        aborted = pin(backend, "aborted")
        tasks(backend, aborted, ROWS)
        abort_group(backend, aborted)
        run_whole(backend, "second")
        for partition in range(3):
            end = backend.bounds(partition).end_offset
            backend.trim(partition, end - 4)
        with self.reopen(backend) as other:
            assert everything(other) == everything(backend)
            assert all(values_in(other, each) == ROWS[each][-len(values_in(other, each)) :] for each in range(3))
            append_foreign(other, 0, "more")
            assert values_in(other, 0)[-1] == "more"

    def test_offset_since_ignores_aborted_loads(self, backend: Backend) -> None:
        aborted = pin(backend, "aborted")
        tasks(backend, aborted, ROWS)
        abort_group(backend, aborted)
        assert backend.offset_since(0, 1) is None
        run_whole(backend, "whole")
        first = records_in(backend, 0)[0][0]
        assert first > 0
        assert backend.offset_since(0, 1) == first
        assert backend.offset_since(0, 2**61) is None

    def test_a_job_is_as_a_whole_or_not(self, backend: Backend) -> None:
        run_whole(backend, "whole")
        run_job(backend, "parts", ROWS)
        with pytest.raises(JobMismatchError, match="planned to be visible as a whole"):
            pin_plan(backend, "whole", END)
        with pytest.raises(JobMismatchError, match="planned to be visible partition by partition"):
            pin(backend, "parts")
        with pytest.raises(OptionError, match="atomic=load and compare=key"):
            pin_plan(backend, "other", END, compare="key", whole=True)
        assert backend.plan("other") is None

    def test_readers_get_no_metadata_of_invisible_rows(self, backend: Backend) -> None:
        append_foreign(backend, 0, "before")
        plan = pin(backend, "job")
        tasks(backend, plan, ROWS)
        assert [backend.offset_since(partition, 1) for partition in range(3)] == [0, None, None]
        assert backend.bounds(0).end_offset == 1
        with pytest.raises(ValueError, match="has 0 to 1"):
            backend.trim(0, 2)
