"""Creating, claiming and appending with one writer at a time."""

from dataclasses import replace

import pytest

from spark_cas.core.errors import LogNotFoundError, LogNotSharedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Conflict, Fenced, LayoutChanged, Truncated
from spark_cas.core.plan import Plan, Progress
from spark_cas.log.backend import Backend
from tests.contract.base import ContractBase, NewBackend
from tests.support.writing import (
    TIME_MS,
    JobWriter,
    append_foreign,
    claim_of,
    plan_of,
    records_in,
    table_of,
    values_in,
    without_end,
)

Snapshot = tuple[list[object], Bounds, Progress | None]


def snapshot(backend: Backend, job: str, partition: int = 0) -> Snapshot:
    """Return the state that a rejected append must not change."""
    return (
        list(records_in(backend, partition)),
        backend.bounds(partition),
        backend.progress(partition, job),
    )


class AppendContract(ContractBase):
    """A chunk is appended completely at the expected offset, or not at all."""

    def test_a_place_without_a_log_says_so(self, new_backend: NewBackend, backend: Backend) -> None:
        with new_backend() as absent:
            with pytest.raises(LogNotFoundError):
                absent.layout()
            with pytest.raises(LogNotFoundError):
                absent.bounds(0)
            with pytest.raises(LogNotSharedError):
                absent.claim(0, plan_of(backend, "job"))

    def test_creating_again_returns_the_first_layout(self, backend: Backend) -> None:
        layout = backend.layout()
        assert layout.partitions == self.partitions
        assert layout.log_id
        assert backend.create(self.partitions + 2) == layout
        with self.reopen(backend) as other:
            assert other.create(1) == layout
            assert other.layout() == layout

    def test_each_log_has_an_identity_of_its_own(self, new_backend: NewBackend, backend: Backend) -> None:
        with new_backend() as other:
            assert other.create(self.partitions).log_id != backend.layout().log_id

    def test_a_new_partition_is_empty(self, backend: Backend) -> None:
        for partition in range(self.partitions):
            assert backend.bounds(partition) == Bounds(0, 0)
            assert records_in(backend, partition) == []
            assert backend.progress(partition, "job") is None

    @pytest.mark.parametrize("offset", [-1, 0])
    def test_a_partition_that_the_log_has_not(self, backend: Backend, offset: int) -> None:
        partition = self.partitions if offset == 0 else offset
        with pytest.raises(ValueError, match=f"partition {partition}"):
            backend.bounds(partition)

    def test_chunks_follow_one_another(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job"))
        first = writer.must_append("a", "b")
        second = writer.must_append("c")
        assert first == Appended(
            OffsetRange(0, first.range.end_offset),
            2,
            first.timestamp_ms,
            start_offset=0,
            has_offset=first.has_offset,
            resolved=False,
        )
        assert len(first.range) >= first.count
        assert second.range.base_offset >= first.range.end_offset
        assert second.count == 1
        assert backend.bounds(0) == Bounds(0, second.range.end_offset)
        assert values_in(backend, 0) == ["a", "b", "c"]
        assert records_in(backend, 1) == []

    def test_what_was_appended_is_seen_at_once_by_others(self, backend: Backend) -> None:
        with self.reopen(backend) as other:
            assert other.bounds(0) == Bounds(0, 0)
            writer = JobWriter(backend, plan_of(backend, "job"))
            for value in "abc":
                appended = writer.must_append(value)
                assert other.bounds(0).end_offset == appended.range.end_offset
                assert other.progress(0, "job") == backend.progress(0, "job")
            assert values_in(other, 0) == ["a", "b", "c"]

    def test_partitions_are_independent(self, backend: Backend) -> None:
        plan = plan_of(backend, "job")
        append_foreign(backend, 1, "x")
        JobWriter(backend, plan, 0).must_append("a")
        assert isinstance(JobWriter(backend, plan, 1).append(table_of("a")), Conflict)
        assert (values_in(backend, 0), values_in(backend, 1)) == (["a"], ["x"])

    def test_someone_else_s_record_is_a_conflict(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job"))
        end = append_foreign(backend, 0, "x", "y").range.end_offset
        before = snapshot(backend, "job")
        for _ in range(3):
            assert writer.append(table_of("a")) == Conflict(expected=0, actual=end, start_offset=0)
        assert snapshot(backend, "job") == before

    def test_someone_else_s_record_between_two_chunks_is_a_conflict(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job"))
        own = writer.must_append("a").range.end_offset
        end = append_foreign(backend, 0, "x").range.end_offset
        before = snapshot(backend, "job")
        assert writer.append(table_of("b")) == Conflict(own, end, 0)
        assert snapshot(backend, "job") == before

    @pytest.mark.parametrize("expected", [0, 1, 2, 3, 4])
    def test_an_offset_within_the_log_is_a_conflict(self, backend: Backend, expected: int) -> None:
        append_foreign(backend, 0, "x", "y", "z")
        end = append_foreign(backend, 0, "u", "v").range.end_offset
        before = snapshot(backend, "job")
        writer = JobWriter(backend, plan_of(backend, "job", f'{{"0": {expected}}}'))
        assert writer.append(table_of("a")) == Conflict(expected, end, 0)
        assert snapshot(backend, "job") == before

    @pytest.mark.parametrize("past", [1, 2, 1000])
    def test_an_offset_past_the_end_is_truncated(self, backend: Backend, past: int) -> None:
        end = append_foreign(backend, 0, "x", "y").range.end_offset
        before = snapshot(backend, "job")
        writer = JobWriter(backend, plan_of(backend, "job", f'{{"0": {end + past}}}'))
        assert writer.append(table_of("a")) == Truncated(end + past, end)
        assert snapshot(backend, "job") == before
        append_foreign(backend, 0, "z")
        assert values_in(backend, 0) == ["x", "y", "z"]

    def test_without_check_others_may_write_in_between(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job", "none"))
        append_foreign(backend, 0, "x")
        writer.must_append("a")
        append_foreign(backend, 0, "y")
        writer.must_append("b", complete=True)
        assert values_in(backend, 0) == ["x", "a", "y", "b"]
        progress = backend.progress(0, "job")
        assert progress is not None
        assert (progress.rows, progress.chunks, progress.complete) == (2, 2, True)

    def test_one_claim_is_good_for_one_append(self, backend: Backend) -> None:
        for job, expected in [("checked", "end"), ("unchecked", "none")]:
            claim = claim_of(backend, 0, plan_of(backend, job, expected))
            writer = JobWriter(backend, claim.plan)
            chunk = writer.chunk(table_of("a"))
            assert isinstance(backend.append(claim, chunk), Appended)
            before = snapshot(backend, job)
            for _ in range(20):
                assert backend.append(claim, chunk) == Fenced("run/0")
            assert snapshot(backend, job) == before

    @pytest.mark.parametrize("expected", ["end", "none"])
    def test_a_writer_whose_job_moved_on_is_fenced(self, backend: Backend, expected: str) -> None:
        plan = plan_of(backend, "job", expected)
        with self.reopen(backend) as other:
            frozen = JobWriter(other, plan, task="run/0-frozen")
            newer = JobWriter(backend, plan, task="run/0-newer")
            newer.must_append("a")
            before = snapshot(backend, "job")
            assert frozen.append(table_of("b")) == Fenced("run/0-newer")
            assert frozen.append(table_of([]), complete=True) == Fenced("run/0-newer")
            assert snapshot(backend, "job") == before
            append_foreign(backend, 0, "x")
            assert frozen.append(table_of("b")) == Fenced("run/0-newer"), "also behind foreign records"
            assert values_in(backend, 0) == ["a", "x"]

    def test_a_writer_is_fenced_by_a_job_that_closed(self, backend: Backend) -> None:
        plan = plan_of(backend, "job")
        JobWriter(backend, plan).must_append("a")
        frozen = JobWriter(backend, plan)
        newer = JobWriter(backend, plan, task="run/1")
        newer.must_append(complete=True)
        assert frozen.append(table_of("b")) == Fenced("run/1")
        assert values_in(backend, 0) == ["a"]

    @pytest.mark.parametrize("expected", ["end", "none"])
    def test_a_claim_after_each_chunk_goes_on_there(self, backend: Backend, expected: str) -> None:
        append_foreign(backend, 0, "x")
        plan = plan_of(backend, "job", expected)
        for at, value in enumerate("abcd"):
            with self.reopen(backend) as other:
                writer = JobWriter(other, plan, task=f"run/{at}")
                assert writer.claim.progress == backend.progress(0, "job")
                writer.must_append(value)
                foretold = without_end(writer.claim.progress)
                assert foretold == without_end(backend.progress(0, "job")), "after() foretells the ledger"
        assert values_in(backend, 0) == ["x", "a", "b", "c", "d"]

    def test_the_ledger_says_what_the_log_holds_of_a_job(self, backend: Backend) -> None:
        base = append_foreign(backend, 0, "x").range.end_offset
        plan = plan_of(backend, "job")
        writer = JobWriter(backend, plan, task="run/7")
        first = writer.chunk(table_of("ab"))
        end = writer.must_append("a", "b").range.end_offset
        progress = backend.progress(0, "job")
        assert progress is not None
        assert records_in(backend, 0)[-1][0] < progress.end_offset <= end
        assert progress == Progress(
            job="job",
            partition=0,
            rows=2,
            digest=first.digest,
            base_offset=base,
            end_offset=progress.end_offset,
            chunks=1,
            layout_epoch=plan.layout_epoch,
            complete=False,
            committed_at_ms=TIME_MS,
            task="run/7",
            least_expected=base + 2,
        )
        last = writer.chunk(table_of("c"), complete=True)
        writer.must_append("c", complete=True)
        assert without_end(backend.progress(0, "job")) == without_end(
            replace(progress, rows=3, digest=last.digest, chunks=2, complete=True, least_expected=base + 3)
        )
        assert backend.progress(1, "job") is None
        assert backend.progress_of([1, 0], "job") == (None, backend.progress(0, "job"))
        assert backend.progress_of([], "job") == ()
        assert backend.progress(0, "another") is None

    def test_closing_appends_no_record_and_asks_for_no_offset(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job"))
        writer.must_append("a", "b")
        before = backend.progress(0, "job")
        assert before is not None
        append_foreign(backend, 0, "x")
        bounds = backend.bounds(0)
        closed = writer.must_append(complete=True)
        assert (closed.count, len(closed.range)) == (0, 0)
        assert without_end(backend.progress(0, "job")) == without_end(replace(before, complete=True))
        assert backend.bounds(0) == bounds
        append_foreign(backend, 0, "y")
        assert without_end(backend.progress(0, "job")) == without_end(replace(before, complete=True))
        assert values_in(backend, 0) == ["a", "b", "x", "y"]

    def test_closing_a_job_that_has_no_rows(self, backend: Backend) -> None:
        JobWriter(backend, plan_of(backend, "job")).must_append(complete=True)
        progress = backend.progress(0, "job")
        assert progress is not None
        assert (progress.rows, progress.chunks, progress.complete) == (0, 0, True)
        assert backend.bounds(0) == Bounds(0, 0)
        append_foreign(backend, 0, "x")
        assert values_in(backend, 0) == ["x"]

    def test_many_jobs_keep_their_progress(self, backend: Backend) -> None:
        writers = {job: JobWriter(backend, plan_of(backend, job, "none")) for job in "pqr"}
        for round_ in range(3):
            for job, writer in writers.items():
                writer.must_append(f"{job}{round_}")
        for job, writer in writers.items():
            with self.reopen(backend) as other:
                progress = other.progress(0, job)
                assert without_end(progress) == without_end(writer.claim.progress)
                assert progress is not None
                assert (progress.rows, progress.chunks) == (3, 3)

    def test_a_plan_of_another_log_is_refused(self, new_backend: NewBackend, backend: Backend) -> None:
        with new_backend() as other:
            other.create(self.partitions)
            with pytest.raises(LogNotSharedError):
                backend.claim(0, plan_of(other, "job"))

    @pytest.mark.parametrize("planned", [1, 7])
    def test_a_plan_of_another_layout_is_refused(self, backend: Backend, planned: int) -> None:
        plan: Plan = replace(plan_of(backend, "job"), layout_epoch=planned)
        assert backend.claim(0, plan) == LayoutChanged(planned=planned, actual=backend.layout().epoch)
