"""Expected offsets of partitions: checked before a job's first row, and after its last in partitions without rows."""

import json

import pytest

from spark_cas.core.errors import ConflictError, TruncatedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Conflict, KeyConflict, ProgressLost, Refusal, RowConflict, error_of
from spark_cas.core.plan import BY_KEY
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import complete_job, pin_plan, refused_as_a_whole
from tests.contract.base import ContractBase
from tests.support.faults import Fault, FaultyLog, When
from tests.support.loads import crash_after_chunks, load, rows_of, run_job, void
from tests.support.writing import append_foreign, records_in, values_in


def ends_of(backend: Backend) -> str:
    """Return the ends of all partitions as a bootstrap passes them to the next write."""
    return json.dumps({each: backend.bounds(each).end_offset for each in range(backend.layout().partitions)})


def next_offsets(error: pytest.ExceptionInfo[ConflictError]) -> str:
    """Return the expected offsets that an error recommends for the next run."""
    assert error.value.next_offsets is not None
    return json.dumps(error.value.next_offsets)


def all_of(backend: Backend) -> list[object]:
    """Return all records of all partitions."""
    return [records_in(backend, each) for each in range(backend.layout().partitions)]


class ExpectContract(ContractBase):
    """A stale writer is rejected without any append, and one error has all offsets that it needs to retry."""

    @pytest.mark.parametrize("stale", [(1,), (2,), (0, 2), (0, 1, 2)])
    def test_a_stale_writer_is_refused_with_nothing_anywhere(self, backend: Backend, stale: tuple[int, ...]) -> None:
        append_foreign(backend, 1, "before")
        given = ends_of(backend)
        for partition in stale:
            append_foreign(backend, partition, "meanwhile")
        before, rows = all_of(backend), rows_of(4, 0, 1)
        with pytest.raises(ConflictError) as refused:
            run_job(backend, "job", rows, expected=given)
        changed = json.loads(next_offsets(refused)).items() - json.loads(given).items()
        assert {int(partition) for partition, _ in changed} == set(stale)
        assert (all_of(backend), backend.plan("job")) == (before, None)
        run_job(backend, "job", rows, expected=next_offsets(refused), run="run-2")
        assert [values_in(backend, each)[-4:] for each in (0, 1)] == [rows[0], rows[1]]

    def test_offsets_after_the_last_record_match_up_to_the_end(self, backend: Backend) -> None:
        lies_at = {each: append_foreign(backend, each, "x", "y").range.base_offset for each in (0, 2)}
        behind = json.dumps({each: base + 2 for each, base in lies_at.items()} | {1: 0})
        run_job(backend, "job", rows_of(4, 0), expected=behind)
        now = json.loads(ends_of(backend))
        stale = json.dumps({0: now["0"], 1: 0, 2: lies_at[2] + 1})
        with pytest.raises(ConflictError) as refused:
            pin_plan(backend, "other", ExpectedOffsets.parse(stale))
        assert (refused.value.partition, refused.value.expected_offset) == (2, lies_at[2] + 1)

    def test_all_partitions_that_lost_records_are_named(self, backend: Backend) -> None:
        append_foreign(backend, 2, "x")
        with pytest.raises(TruncatedError, match=r"partition 0: expected offset 7.*; partition 1: expected offset 8"):
            run_job(backend, "job", rows_of(4, 2), expected='{"0": 7, "1": 8, "2": 0}')
        assert backend.plan("job") is None

    def test_unchecked_partition_accepts_foreign_records(self, backend: Backend) -> None:
        append_foreign(backend, 1, "x")
        run_job(backend, "job", rows_of(4, 0, 1), expected='{"0": 0, "1": null}')
        assert len(values_in(backend, 1)) == 1 + 4
        stale = ExpectedOffsets.parse('{"0": 0}')
        assert pin_plan(backend, "by-key", stale, compare=BY_KEY).job == "by-key", "a key may still be unchanged"

    @pytest.mark.parametrize("again", ["given", "end"])
    def test_killed_job_resumes_after_its_own_rows_only(self, backend: Backend, again: str) -> None:
        append_foreign(backend, 0, "x")
        given, rows = ends_of(backend), rows_of(7, 0, 1)
        crash_after_chunks(backend, "job", rows, 3, expected=given)
        expected = given if again == "given" else again
        append_foreign(backend, 2, "meanwhile")
        before = all_of(backend)
        with pytest.raises(ConflictError, match="9 rows of job 'job' are in") as refused:
            run_job(backend, "job", rows, expected=expected, run="run-2")
        assert refused.value.partition == 2
        assert all_of(backend) == before
        run_job(backend, "job", rows, expected=next_offsets(refused), run="run-3")
        assert (values_in(backend, 0), values_in(backend, 1)) == (["x", *rows[0]], rows[1])

    def test_append_of_another_attempt_during_the_check_is_no_conflict(self, backend: Backend) -> None:
        given, rows = ends_of(backend), rows_of(7, 0)
        crash_after_chunks(backend, "job", rows, 1, expected=given)
        go_on = Fault("bounds_of", 1, When.BEFORE, lambda: crash_after_chunks(backend, "job", rows, 1, run="alive"))
        plan = pin_plan(FaultyLog(backend, go_on), "job", ExpectedOffsets.parse(given))
        complete_job(backend, plan, load(backend, plan, rows, task="run-2/0"))
        assert values_in(backend, 0) == rows[0]

    def test_partition_without_rows_is_checked_again_at_the_end(self, backend: Backend) -> None:
        given, rows = ends_of(backend), rows_of(4, 0, 2)
        meanwhile = Fault("append", 3, When.AFTER, lambda: void(append_foreign(backend, 1, "x")))
        with pytest.raises(ConflictError) as refused:
            run_job(FaultyLog(backend, meanwhile), "job", rows, expected=given)
        assert (refused.value.partition, refused.value.expected_offset) == (1, 0)
        assert "All 8 that it has are in the log" in refused.value.message
        assert backend.completion("job") is None
        before = all_of(backend)
        with pytest.raises(ConflictError) as again:
            run_job(backend, "job", rows, run="run-2")
        assert again.value.partition == 1
        done = run_job(backend, "job", rows, expected=next_offsets(refused), run="run-3")
        assert (done.rows, all_of(backend)) == (sum(map(len, rows.values())), before)

    def test_of_a_complete_job_nothing_is_compared(self, backend: Backend) -> None:
        given, rows = ends_of(backend), rows_of(4, 0)
        done = run_job(backend, "job", rows, expected=given)
        for partition in range(3):
            append_foreign(backend, partition, "x")
        assert run_job(backend, "job", rows, expected=given, run="run-2") == done

    @pytest.mark.parametrize("mode", ["end", "given"])
    def test_conflict_of_an_append_has_all_new_offsets(self, backend: Backend, mode: str) -> None:
        rows = rows_of(7, 0, 1, 2)
        expected = ends_of(backend) if mode == "given" else mode
        plan = pin_plan(backend, "job", ExpectedOffsets.parse(expected))
        append_foreign(backend, 1, "x")
        append_foreign(backend, 2, "y", "z")
        with pytest.raises(ConflictError) as first:
            load(backend, plan, rows)
        with pytest.raises(ConflictError) as refused:
            raise refused_as_a_whole(backend, plan, first.value, rows)
        assert json.loads(next_offsets(refused)).keys() >= {"1", "2"}
        assert "3 rows of job 'job' are in the log" in refused.value.message
        run_job(backend, "job", rows, expected=next_offsets(refused), run="run-2")
        assert [values_in(backend, each) for each in range(3)] == [rows[0], ["x", *rows[1]], ["y", "z", *rows[2]]]

    def test_conflict_includes_the_offsets_of_the_run_before(self, backend: Backend) -> None:
        rows = rows_of(7, 0, 1)
        pin_plan(backend, "job", ExpectedOffsets.parse("end"))
        append_foreign(backend, 0, "x")
        plan = pin_plan(backend, "job", ExpectedOffsets.parse(ends_of(backend)))
        append_foreign(backend, 1, "y")
        with pytest.raises(ConflictError) as first:
            load(backend, plan, {1: rows[1]})
        assert first.value.partition == 1
        with pytest.raises(ConflictError) as refused:
            raise refused_as_a_whole(backend, plan, first.value, {1})
        run_job(backend, "job", rows, expected=next_offsets(refused), run="run-2")
        assert [values_in(backend, each) for each in (0, 1)] == [["x", *rows[0]], ["y", *rows[1]]]

    def test_conflict_omits_unnamed_partitions_without_rows(self, backend: Backend) -> None:
        rows = rows_of(7, 0)
        plan = pin_plan(backend, "job", ExpectedOffsets.parse("end"))
        for partition in (0, 2):
            append_foreign(backend, partition, "x")
        with pytest.raises(ConflictError) as first:
            load(backend, plan, rows)
        with pytest.raises(ConflictError) as refused:
            raise refused_as_a_whole(backend, plan, first.value, rows)
        assert refused.value.partition == 0
        assert json.loads(next_offsets(refused)).keys() == {"0"}
        append_foreign(backend, 2, "y")
        run_job(backend, "job", rows, expected=next_offsets(refused), run="run-2")
        assert values_in(backend, 0) == ["x", *rows[0]]

    @pytest.mark.parametrize("refusal", [RowConflict(3, 7, 9, truncated=False), KeyConflict(3, "N1", 7, 9, 12)])
    def test_conflict_keeps_its_row_or_key(self, backend: Backend, refusal: Refusal) -> None:
        plan = pin_plan(backend, "job", ExpectedOffsets.parse(ends_of(backend)))
        error = error_of(refusal, 0)
        assert refused_as_a_whole(backend, plan, error, {0}).message.startswith(error.message)
        append_foreign(backend, 2, "x")
        whole = refused_as_a_whole(backend, plan, error, {0})
        assert isinstance(whole, ConflictError)
        assert whole.message.startswith(f"{error.message} And partition 2: expected offset 0")
        assert (whole.partition, set(whole.next_offsets or ())) == (0, {0, 1, 2})

    def test_conflict_is_not_replaced_by_another(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", ExpectedOffsets.parse(ends_of(backend)))
        append_foreign(backend, 2, "x")
        error = error_of(Conflict(0, 9, 0), 0)
        assert refused_as_a_whole(backend, plan, error, {0}).message.startswith(error.message)

    def test_a_stream_is_refused_only_where_its_batch_has_rows(self, backend: Backend) -> None:
        plan = pin_plan(backend, "stream", ExpectedOffsets.parse(ends_of(backend)), stream=True)
        for partition in (0, 2):
            append_foreign(backend, partition, "x")
        told = refused_as_a_whole(backend, plan, error_of(Conflict(0, 1, 0), 0), {0}).message
        assert told.startswith("partition 0: expected offset 0")
        assert "partition 2" not in told

    def test_lost_progress_is_not_reported_as_no_row(self, backend: Backend) -> None:
        plan = pin_plan(backend, "job", ExpectedOffsets.parse("none"))
        told = refused_as_a_whole(backend, plan, error_of(ProgressLost("job"), 0), {0}).message
        assert told.endswith(
            "The number of rows of job 'job' in the log is unknown. Another job name would append them again."
        )

    def test_two_drivers_of_one_job_complete_it_once(self, backend: Backend) -> None:
        given, rows = ends_of(backend), rows_of(4, 0)
        plan = pin_plan(backend, "job", ExpectedOffsets.parse(given))
        results = load(backend, plan, rows)
        done = complete_job(backend, plan, results)
        append_foreign(backend, 1, "x")
        assert complete_job(backend, plan, results) == done
