"""Removal of old records."""

from dataclasses import dataclass

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Conflict, Fenced, ProgressLost
from spark_cas.core.plan import PartitionResult
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.jobs import forget_job
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.base import ContractBase
from tests.contract.whole import run_whole
from tests.support.batches import run_batch
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import TEN, crash_after_chunks, run_job
from tests.support.writing import (
    JobWriter,
    append_foreign,
    claim_of,
    plan_of,
    records_in,
    table_of,
    values_in,
    without_end,
)


@dataclass(frozen=True, slots=True)
class Filled:
    """Nine records, a to i, in chunks of three, two and four."""

    bases: list[int]
    """Base offset of each chunk."""
    records: list[int]
    """Offset of each record."""
    end: int

    def at(self, record: int) -> int:
        """Return the offset of a record, counted from 0. For 9, return the end offset."""
        return [*self.records, self.end][record]


def fill(backend: Backend) -> Filled:
    """Append the nine records."""
    bases = [append_foreign(backend, 0, *values).range.base_offset for values in ["abc", "de", "fghi"]]
    return Filled(bases, [offset for offset, _ in records_in(backend, 0)][-9:], backend.bounds(0).end_offset)


def trim_all(backend: Backend, partition: int = 0) -> None:
    """Append records of other writers, and trim all records before the newest ones."""
    for values in ("x", "y"):
        newest = append_foreign(backend, partition, values)
    backend.trim(partition, newest.range.base_offset)


class TrimContract(ContractBase):
    """Trimmed records are removed, other records stay, and trimming never causes a duplicate append."""

    def start_after(self, filled: Filled, before: int) -> int:
        """Return the start offset after a trim below an offset."""
        return max(base for base in filled.bases if base <= before) if self.trims_whole_chunks else before

    def trim(self, backend: Backend, filled: Filled, record: int) -> int:
        """Trim all records before a record, check the bounds, and return the new start offset."""
        before = filled.at(record)
        start = self.start_after(filled, before)
        unchanged = backend.bounds(0)
        assert backend.trim(0, before, dry_run=True) == Bounds(max(start, unchanged.start_offset), filled.end)
        assert backend.bounds(0) == unchanged, "a dry run trims nothing"
        assert backend.trim(0, before) == Bounds(start, filled.end)
        return start

    @pytest.mark.parametrize("record", range(10))
    def test_trim_removes_only_the_requested_records(self, backend: Backend, record: int) -> None:
        filled = fill(backend)
        start = self.trim(backend, filled, record)
        kept = [value for value, offset in zip("abcdefghi", filled.records, strict=True) if offset >= start]
        assert backend.bounds(0) == Bounds(start, filled.end)
        assert values_in(backend, 0) == kept
        assert "".join(kept).endswith("abcdefghi"[record:])
        with self.reopen(backend) as other:
            assert other.bounds(0) == Bounds(start, filled.end)
            assert values_in(other, 0) == kept

    def test_trimming_again_or_less_moves_nothing(self, backend: Backend) -> None:
        filled = fill(backend)
        start = self.trim(backend, filled, 5)
        for record in (5, 4, 3, 0):
            assert backend.trim(0, filled.at(record)) == Bounds(start, filled.end)

    def test_an_empty_partition_has_nothing_to_trim(self, backend: Backend) -> None:
        assert backend.trim(0, 0) == Bounds(0, 0)

    def test_trimming_past_the_end_is_refused(self, backend: Backend) -> None:
        filled = fill(backend)
        with pytest.raises(ValueError, match=f"{filled.end + 1}"):
            backend.trim(0, filled.end + 1)
        assert backend.bounds(0) == Bounds(0, filled.end)

    @pytest.mark.parametrize(("base", "end"), [(0, 9), (4, 6), (0, 5), (0, 0), (4, 4)])
    def test_trimmed_records_cannot_be_read(self, backend: Backend, base: int, end: int) -> None:
        filled = fill(backend)
        start = self.trim(backend, filled, 5)
        requested = OffsetRange(filled.at(base), filled.at(end))
        named = f"offsets {requested.base_offset} to {requested.end_offset} were requested.* {start} to {filled.end}"
        with pytest.raises(ValueError, match=named):
            list(backend.read(0, requested))

    def test_append_continues_at_the_end_after_a_trim(self, backend: Backend) -> None:
        filled = fill(backend)
        start = self.trim(backend, filled, 9)
        with self.reopen(backend) as other:
            appended = JobWriter(other, plan_of(other, "job")).must_append("j")
            assert (appended.range.base_offset, appended.start_offset) == (filled.end, start)
        backend.trim(0, filled.end)
        assert values_in(backend, 0) == ["j"]

    @pytest.mark.parametrize("expected", [0, 2, 3, 4])
    def test_offset_below_the_start_is_a_conflict_with_the_start(self, backend: Backend, expected: int) -> None:
        filled = fill(backend)
        start = self.trim(backend, filled, 5)
        claim = filled.at(expected)
        writer = JobWriter(backend, plan_of(backend, "job", f'{{"0": {claim}}}'))
        assert writer.append(table_of("a")) == Conflict(claim, actual=filled.end, start_offset=start)
        assert values_in(backend, 0) == list("fghi")

    def test_the_names_that_trimming_freed_take_no_chunk(self, backend: Backend) -> None:
        """The writer was frozen before its put, at an offset that is trimmed meanwhile."""
        with self.reopen(backend) as other:
            frozen = JobWriter(other, plan_of(other, "job"))
            filled = fill(backend)
            start = self.trim(backend, filled, 9)
            kept = values_in(backend, 0)
            assert frozen.append(table_of("z")) == Conflict(0, actual=filled.end, start_offset=start)
            assert values_in(other, 0) == kept
            assert other.bounds(0) == Bounds(start, filled.end)

    def test_progress_survives_a_trim(self, backend: Backend) -> None:
        filled = fill(backend)
        writer = JobWriter(backend, plan_of(backend, "job"))
        writer.must_append("j")
        backend.trim(0, filled.end)
        with self.reopen(backend) as other:
            assert without_end(other.progress(0, "job")) == without_end(writer.claim.progress)
            JobWriter(other, writer.claim.plan, task="run/1").must_append("k", complete=True)
        assert values_in(backend, 0) == ["j", "k"]

    @pytest.mark.parametrize("began", [True, False])
    def test_an_unchecked_job_whose_rows_may_be_trimmed_stops(self, backend: Backend, *, began: bool) -> None:
        plan = plan_of(backend, "job", "none")
        last = None
        if began:
            writer = JobWriter(backend, plan)
            writer.must_append("z")
            last = writer.claim.progress
        fill(backend)
        backend.trim(0, backend.bounds(0).end_offset)
        with self.reopen(backend) as other:
            answer = other.claim(0, plan)
            if isinstance(answer, Claim):
                assert without_end(answer.progress) == without_end(last), (
                    "a claim is locked only by a ledger that outlives the rows"
                )
            else:
                assert answer == ProgressLost("job")

    def test_unchecked_job_continues_after_a_trim_of_older_records(self, backend: Backend) -> None:
        filled = fill(backend)
        plan = plan_of(backend, "job", "none")
        append_foreign(backend, 0, "x")
        backend.trim(0, filled.end)
        assert backend.bounds(0).start_offset == filled.end
        JobWriter(backend, plan).must_append("j")
        assert values_in(backend, 0) == ["x", "j"]

    def test_a_checked_job_whose_rows_are_trimmed_appends_none_twice(self, backend: Backend) -> None:
        plan = plan_of(backend, "job")
        writer = JobWriter(backend, plan)
        writer.must_append("z")
        last = writer.claim.progress
        fill(backend)
        backend.trim(0, backend.bounds(0).end_offset)
        answer = backend.claim(0, plan)
        assert isinstance(answer, Claim)
        if without_end(answer.progress) != without_end(last):
            assert answer.progress is None
            assert answer.expected_offset == 0
        kept = values_in(backend, 0)
        assert isinstance(JobWriter(backend, plan).append(table_of("z")), Conflict)
        assert values_in(backend, 0) == kept

    @pytest.mark.parametrize("trims", [1, 3])
    def test_stream_continues_after_a_trim_of_its_rows(self, backend: Backend, trims: int) -> None:
        run_batch(backend, 0, {0: ["a", "b"]})
        for _ in range(trims):
            trim_all(backend)
        with self.reopen(backend) as other:
            (again,) = run_batch(other, 0, {0: ["a", "b"]})
            assert again.resumed_rows == 2
            run_batch(other, 1, {0: ["c"]})
        assert values_in(backend, 0) == ["y", "c"]

    def test_stream_appends_to_a_partition_that_was_trimmed_before_its_first_row(self, backend: Backend) -> None:
        run_batch(backend, 0, {0: ["a"]})
        trim_all(backend, 1)
        with self.reopen(backend) as other:
            run_batch(other, 1, {0: ["b"], 1: ["c"]})
            trim_all(other, 1)
            run_batch(other, 1, {0: ["b"], 1: ["c"]})
        assert (values_in(backend, 0), values_in(backend, 1)) == (["a", "b"], ["y"])

    @pytest.mark.parametrize("expected_offset", [0, None])
    def test_append_without_completion_is_detected_after_a_trim(
        self, backend: Backend, expected_offset: int | None
    ) -> None:
        def append(log: Backend) -> Appended:
            result = append_once(log, 0, table_of("a"), job="job", expected_offset=expected_offset)
            assert isinstance(result, Appended)
            return result

        with pytest.raises(InjectedFaultError):
            append(FaultyLog(backend, Fault("record_completion", 1, When.BEFORE)))
        trim_all(backend)
        with self.reopen(backend) as other:
            again = append(other)
            assert (again.range.base_offset, again.count, again.resolved) == (0, 1, True)
        assert values_in(backend, 0) == ["y"]

    def test_interrupted_load_resumes_after_a_trim_of_its_rows(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", TEN, 2, expected="none")
        held = len(values_in(backend, 0))
        trim_all(backend)
        assert run_job(backend, "job", TEN, expected="none").rows == len(TEN[0])
        assert values_in(backend, 0) == ["y", *TEN[0][held:]]

    def test_committed_atomic_load_is_complete_after_a_trim(self, backend: Backend) -> None:
        with pytest.raises(InjectedFaultError):
            run_whole(FaultyLog(backend, Fault("record_completion", 1, When.BEFORE)), "job", expected="none")
        for partition in range(3):
            trim_all(backend, partition)
        assert run_whole(backend, "job", expected="none").rows == 30
        assert [values_in(backend, each) for each in range(3)] == [["y"]] * 3

    @pytest.mark.parametrize("first", ["trim", "forget"])
    def test_trimmed_rows_of_a_forgotten_job_are_not_those_of_a_new_one(self, backend: Backend, first: str) -> None:
        run_batch(backend, 0, {0: ["a", "b"]})
        for step in ("trim", "forget") if first == "trim" else ("forget", "trim"):
            if step == "trim":
                trim_all(backend)
            else:
                forget_job(backend, "stream", clock.now_ms(), force=True)
        plan = pin_plan(backend, "stream", ExpectedOffsets.parse("none"), stream=True)
        with self.reopen(backend) as frozen:
            claim = claim_of(frozen, 0, plan)
            assert claim.progress is None
            trim_all(backend)
            assert frozen.progress(0, "stream") is None
            chunk = JobWriter(backend, plan_of(backend, "unused", "none")).chunk(table_of("a"))
            assert isinstance(frozen.append(claim, chunk), Appended)
        assert values_in(backend, 0) == ["y", "a"]

    @pytest.mark.parametrize("job", ["planned", "unfinished", "complete"])
    @pytest.mark.parametrize("begun", [True, False])
    def test_frozen_unchecked_writer_does_not_repeat_trimmed_rows(
        self, backend: Backend, job: str, *, begun: bool
    ) -> None:
        """Another attempt of the job appended the rows, and these and their progress were trimmed."""
        plan = plan_of(backend, "job", "none")
        if job != "planned":
            plan = pin_plan(backend, "job", ExpectedOffsets.parse("none"))
        if begun:
            JobWriter(backend, plan).must_append("y")
        with self.reopen(backend) as other:
            frozen = JobWriter(other, plan, task="run/0-frozen")
            newer = JobWriter(backend, plan, task="run/0-newer")
            newer.must_append("z", complete=job == "complete")
            if job == "complete" and newer.claim.progress:
                complete_job(backend, plan, (PartitionResult(newer.claim.progress, 0, 0),))
            fill(backend)
            backend.trim(0, backend.bounds(0).end_offset)
            kept = values_in(backend, 0)
            for outcome in (frozen.append(table_of("z")), frozen.append(table_of([]), complete=True)):
                assert outcome in (ProgressLost("job"), Fenced("run/0-newer"))
        assert values_in(backend, 0) == kept

    def test_writer_with_all_rows_of_its_job_continues_after_a_trim(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job", "none"))
        writer.must_append("y")
        appended = append_foreign(backend, 0, "x")
        backend.trim(0, appended.range.base_offset)
        assert backend.bounds(0).start_offset == appended.range.base_offset
        assert isinstance(writer.append(table_of("z")), Appended)
        assert values_in(backend, 0) == ["x", "z"]
        assert without_end(backend.progress(0, "job")) == without_end(writer.claim.progress)
