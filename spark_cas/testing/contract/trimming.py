"""Letting go of old records."""

import pytest

from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Conflict, Fenced, ProgressLost
from spark_cas.log.protocol import Backend, Claim
from spark_cas.testing.contract.base import ContractBase
from spark_cas.testing.writing import (
    JobWriter,
    append_foreign,
    plan_of,
    table_of,
    values_in,
)


def fill(backend: Backend) -> None:
    """Three chunks, at 0, 3 and 5; the end is 9."""
    for values in ["abc", "de", "fghi"]:
        append_foreign(backend, 0, *values)


class TrimContract(ContractBase):
    """Whole chunks go, the newest stays, and no append is accepted twice because of it."""

    @pytest.mark.parametrize(
        ("before", "start"), [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3), (5, 5), (6, 5), (8, 5), (9, 5)]
    )
    def test_whole_chunks_go_and_the_newest_stays(self, backend: Backend, before: int, start: int) -> None:
        fill(backend)
        assert backend.trim(0, before) == Bounds(start, 9)
        assert backend.bounds(0) == Bounds(start, 9)
        assert values_in(backend, 0) == list("abcdefghi"[start:])
        with self.reopen(backend) as other:
            assert other.bounds(0) == Bounds(start, 9)
            assert values_in(other, 0) == list("abcdefghi"[start:])

    def test_trimming_again_or_less_moves_nothing(self, backend: Backend) -> None:
        fill(backend)
        backend.trim(0, 5)
        for before in (5, 4, 3, 0):
            assert backend.trim(0, before) == Bounds(5, 9)

    def test_an_empty_partition_has_nothing_to_trim(self, backend: Backend) -> None:
        assert backend.trim(0, 0) == Bounds(0, 0)

    def test_trimming_past_the_end_is_refused(self, backend: Backend) -> None:
        fill(backend)
        with pytest.raises(ValueError, match="10"):
            backend.trim(0, 10)
        assert backend.bounds(0) == Bounds(0, 9)

    @pytest.mark.parametrize(("base", "end"), [(0, 9), (4, 6), (0, 5), (0, 0), (4, 4)])
    def test_what_is_trimmed_cannot_be_read(self, backend: Backend, base: int, end: int) -> None:
        fill(backend)
        backend.trim(0, 5)
        with pytest.raises(ValueError, match=f"offsets {base} to {end} were asked for.* 5 to 9"):
            list(backend.read(0, OffsetRange(base, end)))

    def test_appending_goes_on_at_the_end(self, backend: Backend) -> None:
        fill(backend)
        backend.trim(0, 9)
        with self.reopen(backend) as other:
            writer = JobWriter(other, plan_of(other, "job"))
            appended = writer.must_append("j")
            assert (appended.range, appended.start_offset) == (OffsetRange(9, 10), 5)
        backend.trim(0, 9)
        assert backend.bounds(0) == Bounds(9, 10)
        assert values_in(backend, 0) == ["j"]

    @pytest.mark.parametrize("expected", [0, 2, 3, 4])
    def test_an_offset_below_the_start_is_a_conflict_that_tells_so(self, backend: Backend, expected: int) -> None:
        fill(backend)
        backend.trim(0, 5)
        writer = JobWriter(backend, plan_of(backend, "job", f'{{"0": {expected}}}'))
        assert writer.append(table_of("a")) == Conflict(expected, actual=9, start_offset=5)
        assert values_in(backend, 0) == list("fghi")

    def test_the_names_that_trimming_freed_take_no_chunk(self, backend: Backend) -> None:
        """A writer that was frozen before its put, at an offset that is trimmed by now."""
        with self.reopen(backend) as other:
            frozen = JobWriter(other, plan_of(other, "job"))
            fill(backend)
            backend.trim(0, 9)
            assert frozen.append(table_of("z")) == Conflict(0, actual=9, start_offset=5)
            assert values_in(other, 0) == list("fghi")
            assert other.bounds(0) == Bounds(5, 9)

    def test_the_newest_chunk_keeps_its_job_s_progress(self, backend: Backend) -> None:
        fill(backend)
        writer = JobWriter(backend, plan_of(backend, "job"))
        writer.must_append("j")
        backend.trim(0, 10)
        with self.reopen(backend) as other:
            assert other.progress(0, "job") == writer.claim.progress
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
                assert last is not None
                assert answer.progress == last, "a claim is granted only by a ledger that outlives the rows"
            else:
                assert answer == ProgressLost("job")

    def test_an_unchecked_job_goes_on_when_only_older_records_were_trimmed(self, backend: Backend) -> None:
        fill(backend)
        plan = plan_of(backend, "job", "none")
        append_foreign(backend, 0, "x")
        backend.trim(0, 9)
        assert backend.bounds(0) == Bounds(9, 10)
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
        if answer.progress != last:
            assert answer.progress is None
            assert answer.expected_offset == 0
        assert isinstance(JobWriter(backend, plan).append(table_of("z")), Conflict)
        assert values_in(backend, 0) == list("fghi")

    @pytest.mark.parametrize("begun", [True, False])
    def test_a_frozen_unchecked_writer_does_not_repeat_what_was_trimmed(
        self, backend: Backend, *, begun: bool
    ) -> None:
        """Another attempt of the job appended the rows meanwhile, and they and their progress are gone."""
        plan = plan_of(backend, "job", "none")
        if begun:
            JobWriter(backend, plan).must_append("y")
        with self.reopen(backend) as other:
            frozen = JobWriter(other, plan, task="run/0-frozen")
            JobWriter(backend, plan, task="run/0-newer").must_append("z")
            fill(backend)
            backend.trim(0, backend.bounds(0).end_offset)
            for outcome in (frozen.append(table_of("z")), frozen.append(table_of([]), complete=True)):
                assert outcome in (ProgressLost("job"), Fenced("run/0-newer"))
        assert values_in(backend, 0) == list("fghi")

    def test_a_writer_that_knows_all_of_its_job_goes_on_after_trimming(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job", "none"))
        writer.must_append("y")
        append_foreign(backend, 0, "x")
        backend.trim(0, 1)
        assert backend.bounds(0) == Bounds(1, 2)
        assert isinstance(writer.append(table_of("z")), Appended)
        assert values_in(backend, 0) == ["x", "z"]
        assert backend.progress(0, "job") == writer.claim.progress
