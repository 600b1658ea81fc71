"""Loads during which the log is expanded. A rerun appends the remaining rows, and no row twice."""

import json
from dataclasses import replace

import pytest

from spark_cas.core.errors import ConflictError, JobMismatchError, LayoutChangedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.after_expansion import earlier_rows, plan_now
from spark_cas.log.load.planning import pin_plan
from tests.contract.base import ContractBase
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import Rows, crash_after_chunks, load, rows_of, run_job, run_rest
from tests.support.raising import raises
from tests.support.writing import append_foreign, values_in

ROWS = rows_of(10, 0, 1)


def all_values(log: Backend) -> list[str]:
    """Return the values of all partitions, sorted."""
    return sorted(value for each in range(log.layout().partitions) for value in values_in(log, each))


def values_of(rows: Rows) -> list[str]:
    """Return the values of an input, sorted."""
    return sorted(value for values in rows.values() for value in values)


def crash_rest(log: Backend, chunks: int, expected: str) -> None:
    """Run the remaining rows of the job and simulate a crash after ``chunks`` chunks."""
    with pytest.raises(InjectedFaultError):
        run_rest(FaultyLog(log, Fault("append", chunks, When.AFTER)), "job", ROWS, expected=expected)


class ContinueContract(ContractBase):
    """Loads that resume after an expansion."""

    @pytest.mark.parametrize("expected", ["end", "none"])
    def test_load_resumes_after_an_expansion(self, backend: Backend, expected: str) -> None:
        append_foreign(backend, 0, "x")
        append_foreign(backend, 1, "y")
        crash_after_chunks(backend, "job", ROWS, 3, expected=expected)
        assert earlier_rows(backend, "job") == ()
        there = all_values(backend)
        expand_log(backend, 4)
        (earlier,) = earlier_rows(backend, "job")
        assert (earlier.job, earlier.partitions, sum(earlier.rows)) == ("job", self.partitions, len(there) - 2)
        with raises(LayoutChangedError, job="job"):
            run_job(backend, "job", ROWS, expected=expected)
        assert all_values(backend) == there
        crash_rest(backend, 2, expected)
        with self.reopen(backend) as other:
            done = run_rest(other, "job", ROWS, expected=expected, run="again")
            assert all_values(other) == sorted(["x", "y", *values_of(ROWS)])
            assert values_in(other, 3) != []
            assert done.rows + sum(earlier.rows) == len(values_of(ROWS))
            now = plan_now(other, "job")
            assert now is not None
            assert (now.job, now.earlier_rows) == (done.job, sum(earlier.rows))
        with pytest.raises(
            LayoutChangedError, match=r"^\[LAYOUT_CHANGED\] 0 rows were taken out .* appended 9 before"
        ):
            run_job(backend, "job", ROWS, expected=expected)
        assert run_rest(backend, "job", ROWS, expected=expected, run="late") == done
        assert all_values(backend) == sorted(["x", "y", *values_of(ROWS)])

    def test_load_resumes_after_several_expansions(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", ROWS, 2)
        expand_log(backend, 4)
        crash_rest(backend, 2, "end")
        for count in (5, 8):
            expand_log(backend, count)
        assert [each.partitions for each in earlier_rows(backend, "job")] == [self.partitions, 4]
        crash_rest(backend, 1, "end")
        run_rest(backend, "job", ROWS)
        assert all_values(backend) == values_of(ROWS)
        expand_log(backend, 9)
        assert earlier_rows(backend, "job") == ()
        with raises(LayoutChangedError, job="job"):
            run_job(backend, "job", ROWS)
        assert all_values(backend) == values_of(ROWS)

    def test_load_without_rows_resumes_with_all_rows(self, backend: Backend) -> None:
        with pytest.raises(InjectedFaultError):
            run_job(FaultyLog(backend, Fault("append", 1, When.BEFORE)), "job", ROWS)
        expand_log(backend, 4)
        assert earlier_rows(backend, "job") == ()
        run_job(backend, "job", ROWS)
        assert all_values(backend) == values_of(ROWS)

    def test_others_may_append_to_partitions_that_a_load_completed(self, backend: Backend) -> None:
        given = json.dumps(dict.fromkeys(range(self.partitions), 0))
        plan = pin_plan(backend, "job", ExpectedOffsets.parse(given))
        load(backend, plan, {2: ["2.0", "2.1"]})
        append_foreign(backend, 2, "x")
        expand_log(backend, 4)
        (earlier,) = earlier_rows(backend, "job")
        assert earlier.complete == (False, False, True)
        run_rest(backend, "job", ROWS | {2: ["2.0", "2.1"]})
        assert all_values(backend) == sorted(["x", "2.0", "2.1", *values_of(ROWS)])

    @pytest.mark.parametrize("partition", [0, 1, 3])
    def test_later_foreign_record_is_a_conflict_after_an_expansion(self, backend: Backend, partition: int) -> None:
        """The expected offsets are from the first plan, so other records after the load's last row are a conflict."""
        crash_after_chunks(backend, "job", ROWS, 2)
        if partition == 1:
            append_foreign(backend, partition, "x")
        expand_log(backend, 4)
        if partition != 1:
            append_foreign(backend, partition, "x")
        with pytest.raises(ConflictError):
            run_rest(backend, "job", ROWS)
        assert all_values(backend).count("x") == 1
        ends = {str(each): backend.bounds(each).end_offset for each in range(4)}
        run_rest(backend, "job", ROWS, expected=str(ends).replace("'", '"'))
        assert all_values(backend) == sorted(["x", *values_of(ROWS)])

    def test_only_remaining_rows_of_the_same_load_are_accepted(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", ROWS, 2)
        crash_after_chunks(backend, "other", rows_of(6, 2), 1)
        expand_log(backend, 4)
        end, (mine,), others = ExpectedOffsets("end"), earlier_rows(backend, "job"), earlier_rows(backend, "other")
        fewer = replace(mine, rows=(0, *mine.rows[1:]), digests=("", *mine.digests[1:]))
        for wrong in ((), (fewer,), others, (mine, *others)):
            with raises(LayoutChangedError, job="job", resumable=wrong != ()):
                pin_plan(backend, "job", end, earlier=wrong)
            with raises(LayoutChangedError, job="new"):
                pin_plan(backend, "new", end, earlier=wrong or (mine,))
        with pytest.raises(JobMismatchError, match="planned with expected offsets"):
            run_rest(backend, "job", ROWS, expected="none")
        done = run_rest(backend, "job", ROWS)
        with pytest.raises(JobMismatchError, match="is the rest of job 'job'"):
            run_job(backend, done.job, rows_of(1, 0))
        assert backend.plan("new") is None

    def test_name_of_another_job_is_not_used_for_remaining_rows(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", ROWS, 2)
        layout = expand_log(backend, 4)
        run_job(backend, f"job.layout-{layout.epoch}", rows_of(1, 3))
        there = all_values(backend)
        with pytest.raises(JobMismatchError, match="which another job has"):
            run_rest(backend, "job", ROWS)
        assert all_values(backend) == there
