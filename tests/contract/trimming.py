"""Removal of old records."""

from dataclasses import dataclass

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Conflict, Fenced, ProgressLost
from spark_cas.log.backend import Backend
from tests.contract.base import ContractBase
from tests.support.writing import (
    JobWriter,
    append_foreign,
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

    @pytest.mark.parametrize("begun", [True, False])
    def test_frozen_unchecked_writer_does_not_repeat_trimmed_rows(self, backend: Backend, *, begun: bool) -> None:
        """Another attempt of the job appended the rows, and these and their progress were trimmed."""
        plan = plan_of(backend, "job", "none")
        if begun:
            JobWriter(backend, plan).must_append("y")
        with self.reopen(backend) as other:
            frozen = JobWriter(other, plan, task="run/0-frozen")
            JobWriter(backend, plan, task="run/0-newer").must_append("z")
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
