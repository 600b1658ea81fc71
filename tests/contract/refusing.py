"""Loads that must be rejected: changed input, rows in the wrong task, invalid calls."""

from dataclasses import replace
from functools import partial

import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import (
    ConflictError,
    InputChangedError,
    JobMismatchError,
    LayoutChangedError,
    NotRoutedError,
    OptionError,
    RecordTooLargeError,
    TruncatedError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.base import ContractBase
from tests.support.faults import Fault, FaultyLog, When
from tests.support.loads import TEN, Rows, crash_after_chunks, edited, load, rows_of, run_job, void
from tests.support.raising import raises
from tests.support.writing import append_foreign, plan_of, records_in, values_in

END = ExpectedOffsets.parse("end")


class RefuseContract(ContractBase):
    """Committed rows are kept, and no incomplete append is visible."""

    @pytest.mark.parametrize("mode", ["end", "none"])
    @pytest.mark.parametrize(
        "rows",
        [
            pytest.param(edited(1, "changed"), id="row changed"),
            pytest.param(edited(5, "changed"), id="last of the appended rows changed"),
            pytest.param(edited(2), id="row dropped"),
            pytest.param(edited(2, "new", TEN[0][2]), id="row added"),
            pytest.param(edited(2, TEN[0][3], TEN[0][2], instead_of=2), id="rows reordered"),
            pytest.param(edited(5, instead_of=5), id="fewer rows than were appended"),
        ],
    )
    def test_changed_input_is_refused(self, backend: Backend, rows: Rows, mode: str) -> None:
        crash_after_chunks(backend, "job", TEN, 2, expected=mode)
        before = records_in(backend, 0), backend.progress(0, "job")
        with pytest.raises(InputChangedError, match=r"^\[INPUT_CHANGED\] partition 0: job 'job'"):
            run_job(backend, "job", rows, expected=mode, run="run-2")
        assert (records_in(backend, 0), backend.progress(0, "job")) == before
        run_job(backend, "job", TEN, expected=mode, run="run-3")
        assert values_in(backend, 0) == TEN[0]

    @pytest.mark.parametrize(
        "rows",
        [
            pytest.param(edited(9, "changed"), id="row changed"),
            pytest.param(edited(10, "more", instead_of=0), id="row added at the end"),
            pytest.param(edited(9), id="last row dropped"),
            pytest.param({1: ["elsewhere"]}, id="all rows missing"),
        ],
    )
    def test_changed_input_of_a_loaded_partition_is_refused(self, backend: Backend, rows: Rows) -> None:
        run_job(backend, "job", TEN)
        before = records_in(backend, 0), backend.progress(0, "job")
        with pytest.raises(InputChangedError) as raised:
            run_job(backend, "job", rows, run="run-2")
        assert raised.value.partition == 0
        assert (records_in(backend, 0), backend.progress(0, "job")) == before

    def test_input_that_is_too_short_in_one_partition_moves_no_other(self, backend: Backend) -> None:
        rows = rows_of(5, 0, 1)
        plan = pin_plan(backend, "job", END)
        load(backend, plan, {1: rows[1]})
        with pytest.raises(InputChangedError) as raised:
            load(backend, pin_plan(backend, "job", END), {0: ["only one"], 1: rows[1][:3]}, task="run-2/0")
        assert raised.value.partition == 1
        assert values_in(backend, 0) == []

    def test_retried_task_with_fewer_rows_in_one_partition_completes_earlier_ones(self, backend: Backend) -> None:
        rows = rows_of(5, 0, 1)
        plan = pin_plan(backend, "job", END)
        load(backend, plan, {1: rows[1]})
        before = records_in(backend, 1)
        with pytest.raises(InputChangedError) as raised:
            load(backend, plan, {0: rows[0], 1: rows[1][:3]})
        assert raised.value.partition == 1
        assert (values_in(backend, 0), records_in(backend, 1)) == (rows[0], before)

    @pytest.mark.parametrize("chunks", [1, 4])
    def test_rows_of_a_partition_from_two_tasks_are_refused(self, backend: Backend, chunks: int) -> None:
        crash_after_chunks(backend, "job", TEN, chunks)
        before = records_in(backend, 0)
        with pytest.raises(NotRoutedError, match=r"^\[NOT_ROUTED\] partition 0 .*spark_cas\.route"):
            load(backend, pin_plan(backend, "job", END), {0: ["more"]}, task="run/1")
        assert records_in(backend, 0) == before

    def test_rows_of_a_partition_from_two_tasks_at_once_are_refused(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", END)
        second = partial(load, backend, plan, {0: ["more"]}, task="run/1")
        with pytest.raises(NotRoutedError):
            load(FaultyLog(backend, Fault("append", 1, When.BEFORE, lambda: void(second()))), plan, TEN)
        assert values_in(backend, 0) == ["more"]

    @pytest.mark.parametrize("partition", [-1, 3, 99])
    def test_a_row_for_a_partition_that_the_log_has_not(self, backend: Backend, partition: int) -> None:
        with pytest.raises(NotRoutedError, match=rf"partition {partition}, but the log has 3 \(0 to 2\)"):
            run_job(backend, "job", {partition: ["a"]})

    def test_too_large_record_stops_the_job_until_the_limit_is_raised(self, backend: Backend) -> None:
        rows = {0: ["a", "b", "c", "x" * 200, "d"]}
        small = ChunkLimits(max_records=2, max_bytes=150, max_seconds=1_000)
        plan = pin_plan(backend, "job", END)
        with pytest.raises(RecordTooLargeError) as raised:
            load(backend, plan, rows, limits=small, size=1)
        assert raised.value.row == 3
        assert values_in(backend, 0) == ["a", "b"]
        load(backend, plan, rows)
        assert values_in(backend, 0) == rows[0]

    def test_a_known_job_keeps_its_first_plan(self, backend: Backend) -> None:
        first = pin_plan(backend, "job", END)
        append_foreign(backend, 0, "x")
        with self.reopen(backend) as other:
            assert pin_plan(other, "job", END) == first
        with pytest.raises(ConflictError):
            run_job(backend, "job", TEN)
        with pytest.raises(JobMismatchError) as raised:
            pin_plan(backend, "job", ExpectedOffsets.parse("none"))
        assert raised.value.job == "job"
        assert values_in(backend, 0) == ["x"]

    @pytest.mark.parametrize(
        ("job", "expected"), [("../up", "end"), ("", "end"), ("job", '{"3": 0}'), ("a/b", "none")]
    )
    def test_a_wrong_call_records_nothing(self, backend: Backend, job: str, expected: str) -> None:
        with pytest.raises(OptionError):
            pin_plan(backend, job, ExpectedOffsets.parse(expected))
        assert backend.jobs() == ()

    def test_a_plan_for_another_log_or_layout_is_refused(self, backend: Backend) -> None:
        backend.record_plan(replace(plan_of(backend, "other-log"), log_id="f" * 32))
        with pytest.raises(TruncatedError) as raised:
            run_job(backend, "other-log", TEN)
        assert raised.value.job == "other-log"
        backend.record_plan(replace(plan_of(backend, "other-layout"), layout_epoch=4))
        with raises(LayoutChangedError, job="other-layout"):
            run_job(backend, "other-layout", TEN)
        assert values_in(backend, 0) == []

    def test_a_job_is_completed_with_all_that_the_log_holds_of_it(self, backend: Backend) -> None:
        rows = rows_of(4, 0, 2)
        plan = pin_plan(backend, "job", END)
        results = [load(backend, plan, {at: rows[at]}, task=f"run/{at}")[0] for at in (2, 0)]
        with pytest.raises(InputChangedError) as raised:
            complete_job(backend, plan, (results[0],))
        assert (raised.value.partition, raised.value.job) == (0, "job")
        assert backend.completion("job") is None
        done = complete_job(backend, plan, tuple(results))
        assert [result.progress.partition for result in done.partitions] == [0, 2]
