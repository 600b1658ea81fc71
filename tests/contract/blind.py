"""Appends without exactly-once: at the end, without a ledger entry, and without effect on running jobs."""

from functools import partial

import pytest

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import LayoutChangedError, LogNotSharedError, NotRoutedError
from spark_cas.core.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, IDEMPOTENT, OFF, REQUESTED, REQUIRED
from spark_cas.core.outcome import Appended, Conflict, LayoutChanged
from spark_cas.core.plan import Layout, PartitionResult
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.append_rows import load_blind
from tests.contract.base import ContractBase, NewBackend, at_once
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import LIMITS, Rows, batches_of, rows_of, run_job
from tests.support.writing import TIME_MS, JobWriter, plan_of, records_in, table_of, values_in

LESS = [IDEMPOTENT, AT_LEAST_ONCE]


def run_blind(log: Backend, rows: Rows, guarantee: str = AT_LEAST_ONCE) -> tuple[PartitionResult, ...]:
    """Run one attempt of a single task with all rows."""
    return load_blind(log, log.layout(), batches_of(rows, 2), task="run/0", limits=LIMITS, guarantee=guarantee)


def blindly(log: Backend, *values: str, layout: Layout | None = None) -> Appended | LayoutChanged:
    """Append one chunk at the end of partition 0."""
    chunk = Chunk(table_of(values), len(values), "", complete=False, task="run/0", time_ms=TIME_MS)
    outcome = log.append_blind(0, layout or log.layout(), chunk, AT_LEAST_ONCE)
    assert isinstance(outcome, Appended | LayoutChanged), outcome
    return outcome


class BlindContract(ContractBase):
    """Acknowledged rows are in the log. They belong to no job and do not fence the writer of a job."""

    @pytest.mark.parametrize("guarantee", LESS)
    def test_rows_without_a_plan_are_appended_in_order_and_leave_no_job(
        self, backend: Backend, guarantee: str
    ) -> None:
        run_job(backend, "job", {0: ["x"]})
        rows = rows_of(7, 0, 2)
        first, other = run_blind(backend, rows, guarantee)
        assert [values_in(backend, partition) for partition in range(3)] == [["x", *rows[0]], [], rows[2]]
        offsets = [offset for offset, _ in records_in(backend, 0)][1:]
        held, said = first.progress, first.appends
        assert (held.base_offset, held.rows, held.chunks) == (offsets[0], 7, 3)
        assert offsets[-1] < held.end_offset <= backend.bounds(0).end_offset
        assert (first.guarantee, other.guarantee, other.progress.partition) == (guarantee, guarantee, 2)
        assert (said.attempts, said.has_offset, said.has_timestamp, said.start_offset) == (3, True, True, 0)
        assert backend.jobs() == ("job",)
        fresh = JobWriter(backend, plan_of(backend, "another"), 1).chunk(table_of(rows[0]))
        assert held.digest == fresh.digest

    def test_retried_blind_append_is_stored_twice(self, backend: Backend) -> None:
        for _ in range(2):
            run_blind(backend, rows_of(2, 0))
        assert values_in(backend, 0) == rows_of(2, 0)[0] * 2

    def test_a_writer_with_an_expectation_is_refused_and_not_fenced(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job"))
        own = writer.must_append("a").range.end_offset
        found = blindly(backend, "x")
        assert isinstance(found, Appended)
        refused = writer.append(table_of("b"))
        assert isinstance(refused, Conflict)
        assert refused.expected == own < found.range.end_offset <= refused.actual
        assert values_in(backend, 0) == ["a", "x"]

    def test_exactly_once_writer_continues_after_blind_appends(self, backend: Backend) -> None:
        writer = JobWriter(backend, plan_of(backend, "job", "none"))
        writer.must_append("a")
        blindly(backend, "x")
        writer.must_append("b", complete=True)
        progress = backend.progress(0, "job")
        assert progress is not None
        assert (progress.rows, progress.complete) == (2, True)
        assert values_in(backend, 0) == ["a", "x", "b"]

    def test_of_many_at_once_none_is_lost(self, backend: Backend) -> None:
        with self.reopen(backend) as other:
            for round_ in range(min(10, self.rounds)):
                at_once(partial(blindly, backend, f"a{round_}"), partial(blindly, other, f"b{round_}"))
            found = values_in(backend, 0)
        assert sorted(found) == sorted(f"{name}{at}" for name in "ab" for at in range(min(10, self.rounds)))

    def test_a_log_that_partitions_were_added_to_takes_no_rows_for_the_old_ones(self, backend: Backend) -> None:
        before = backend.layout()
        blindly(backend, "a")
        expand_log(backend, self.partitions + 1)
        changed = blindly(backend, "b", layout=before)
        assert changed == LayoutChanged(before.epoch, backend.layout().epoch)
        with pytest.raises(LayoutChangedError, match="this attempt has appended 0 rows"):
            load_blind(
                backend, before, batches_of({0: ["b"]}, 1), task="run/0", limits=LIMITS, guarantee=AT_LEAST_ONCE
            )
        assert values_in(backend, 0) == ["a"]

    def test_blind_append_fails_during_an_expansion(self, backend: Backend) -> None:
        before = backend.layout()
        with pytest.raises(InjectedFaultError):
            expand_log(FaultyLog(backend, Fault("end_partition", 1, When.BEFORE)), self.partitions + 1)
        assert isinstance(blindly(backend, "a", layout=before), LayoutChanged)
        assert values_in(backend, 0) == []

    def test_another_log_and_another_partition_take_nothing(self, new_backend: NewBackend, backend: Backend) -> None:
        with new_backend() as other:
            layout = other.create(self.partitions)
            with pytest.raises(LogNotSharedError):
                blindly(backend, "a", layout=layout)
        with pytest.raises(NotRoutedError):
            run_blind(backend, {self.partitions: ["a"]})
        assert values_in(backend, 0) == []

    def test_requested_guarantee_is_exactly_once_if_supported(self, backend: Backend) -> None:
        for asked, given in [(REQUIRED, EXACTLY_ONCE), (REQUESTED, EXACTLY_ONCE), (OFF, AT_LEAST_ONCE)]:
            assert backend.preflight(idempotence=asked).guarantee == given
