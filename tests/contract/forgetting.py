"""Forgetting a job: its records are removed, its rows stay, and its name is free, if no guarantee is violated."""

import pytest

from spark_cas.core.errors import LayoutChangedError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import Plan
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.jobs import forget, forget_job, older_jobs
from spark_cas.log.load.planning import complete_job, job_progress, pin_plan
from tests.contract.base import ContractBase
from tests.support.batches import run_batch
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import TEN, crash_after_chunks, load, rows_of, run_job, run_rest
from tests.support.raising import raises
from tests.support.writing import JobWriter, append_foreign, plan_of, values_in

_HOUR_MS = 3_600_000
_ALL = len(TEN[0])


def in_hours(hours: int) -> int:
    """Return the time in so many hours, plus one second."""
    return clock.now_ms() + hours * _HOUR_MS + 1_000


def pin_round(log: Backend, number: int) -> Plan:
    """Return the plan of a round of `append_if_unchanged` of the job."""
    name = f"job.unchanged.{number}"
    return pin_plan(log, name, ExpectedOffsets.parse("none"), compare="key", round_of="job")


class ForgetContract(ContractBase):
    """Jobs that can be forgotten, and jobs that cannot."""

    @pytest.mark.parametrize("elsewhere", [False, True])
    @pytest.mark.parametrize("expected", ["end", "none"])
    def test_the_name_of_a_forgotten_job_is_that_of_a_new_load(
        self, backend: Backend, expected: str, *, elsewhere: bool
    ) -> None:
        run_job(backend, "job", TEN, expected=expected)
        run_job(backend, "other", TEN, expected=expected)
        assert forget_job(backend, "job", in_hours(1), dry_run=True) == _ALL
        assert set(backend.jobs()) == {"job", "other"}
        assert forget_job(backend, "job", in_hours(1)) == _ALL
        assert (backend.plan("job"), backend.completion("job"), backend.jobs()) == (None, None, ("other",))
        assert values_in(backend, 0) == TEN[0] * 2
        rows = {0: [*TEN[0], "new"]}
        with self.reopen(backend) as log:
            again = run_job(log if elsewhere else backend, "job", rows, expected=expected)
            assert (again.rows, again.partitions[0].resumed_rows) == (_ALL + 1, 0)
            assert run_job(log, "job", rows, expected=expected) == again
            assert values_in(log, 0) == [*TEN[0] * 3, "new"]

    def test_another_job_stays_as_it_was(self, backend: Backend) -> None:
        done = run_job(backend, "job.1", TEN)
        crash_after_chunks(backend, "half", rows_of(10, 1), 2)
        run_job(backend, "job", rows_of(5, 2))
        progress = job_progress(backend, "half")
        forget_job(backend, "job", in_hours(1))
        with self.reopen(backend) as log:
            assert (log.completion("job.1"), job_progress(log, "half")) == (done, progress)
            assert run_job(log, "half", rows_of(10, 1)).rows == _ALL
            assert len(values_in(log, 1)) == _ALL

    def test_incomplete_job_is_forgotten_only_with_force(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", TEN, 2)
        there = len(values_in(backend, 0))
        with pytest.raises(
            OptionError, match=f"'job' is not complete.*Of its rows {there} are in the log"
        ) as refused:
            forget_job(backend, "job", in_hours(48))
        assert "the same load, run again, completes it" in str(refused.value)
        assert "a job of this name begins with its first row" in str(refused.value)
        assert backend.plan("job") is not None
        assert forget_job(backend, "job", in_hours(0), force=True) == there
        assert run_job(backend, "job", TEN).rows == _ALL
        assert values_in(backend, 0) == [*TEN[0][:there], *TEN[0]]

    def test_recent_job_is_forgotten_only_with_force(self, backend: Backend) -> None:
        run_job(backend, "job", TEN)
        with pytest.raises(OptionError, match="ran within the last hour"):
            forget_job(backend, "job", in_hours(0))
        assert backend.completion("job") is not None
        assert forget_job(backend, "job", in_hours(0), force=True) == _ALL
        assert backend.plan("job") is None
        run_job(backend, "job", TEN)
        assert values_in(backend, 0) == TEN[0] * 2

    def test_a_job_that_ended_after_its_last_chunk_was_out(self, backend: Backend) -> None:
        writer = JobWriter(backend, backend.record_plan(plan_of(backend, "job")))
        writer.must_append("a")
        writer.must_append(complete=True)
        forget_job(backend, "job", in_hours(0), force=True)
        run_job(backend, "job", {0: ["a"]})
        assert values_in(backend, 0) == ["a", "a"]

    def test_stream_is_forgotten_only_with_force(self, backend: Backend) -> None:
        run_batch(backend, 0, rows_of(2, 0))
        with pytest.raises(OptionError, match=r"'stream' is a stream, which is never complete\. Of its rows 2 are"):
            forget_job(backend, "stream", in_hours(48))
        forget_job(backend, "stream", in_hours(48), force=True)
        run_batch(backend, 0, rows_of(1, 0), query="another")
        assert values_in(backend, 0) == ["0.0", "0.1", "0.0"]

    def test_a_job_that_is_not_there(self, backend: Backend) -> None:
        with pytest.raises(OptionError, match="knows no job 'job'"):
            forget_job(backend, "job", in_hours(1))

    def test_load_that_resumed_after_an_expansion_is_forgotten_completely(self, backend: Backend) -> None:
        crash_after_chunks(backend, "job", TEN, 2)
        expand_log(backend, 4)
        with pytest.raises(OptionError, match="'job' is not complete"):
            forget_job(backend, "job", in_hours(1))
        run_rest(backend, "job", TEN)
        (rest,) = (each for each in backend.jobs() if each != "job")
        with pytest.raises(OptionError, match=f"{rest}' is a part of job 'job'"):
            forget_job(backend, rest, in_hours(1))
        assert forget_job(backend, "job", in_hours(1)) == _ALL
        assert backend.jobs() == ()
        assert run_job(backend, "job", TEN).rows == _ALL

    def test_rounds_are_forgotten_with_their_job(self, backend: Backend) -> None:
        pin_round(backend, 1)
        plan = pin_round(backend, 2)
        results = load(backend, plan, TEN)
        with pytest.raises(OptionError, match=r"'job' is not complete.*Of its rows 10 are"):
            forget_job(backend, "job", in_hours(1))
        complete_job(backend, plan, results)
        with raises(OptionError, job="job.unchanged.2"):
            forget_job(backend, "job.unchanged.2", in_hours(1))
        (kept,) = older_jobs(backend, in_hours(1), 0)
        assert (kept.job, kept.rows) == ("job", _ALL)
        forget(backend, kept)
        assert backend.jobs() == ()

    def test_nothing_is_forgotten_while_partitions_are_being_added(self, backend: Backend) -> None:
        run_job(backend, "job", TEN)
        layout = backend.layout()
        backend.begin_expansion(layout, 4)
        with pytest.raises(LayoutChangedError, match="is being expanded"):
            forget_job(backend, "job", in_hours(1))
        expand_log(backend, 4)
        assert forget_job(backend, "job", in_hours(1)) == _ALL

    def test_jobs_that_are_older(self, backend: Backend) -> None:
        run_job(backend, "complete", TEN)
        crash_after_chunks(backend, "half", rows_of(10, 1), 1)
        run_batch(backend, 0, rows_of(1, 2))
        assert older_jobs(backend, in_hours(0), 0) == []
        assert older_jobs(backend, in_hours(1), 2 * _HOUR_MS) == []
        assert [each.job for each in older_jobs(backend, in_hours(2), 2 * _HOUR_MS)] == ["complete"]

    @pytest.mark.parametrize(("at", "when"), [(1, When.BEFORE), (1, When.AFTER), (2, When.BEFORE)])
    def test_forgetting_that_was_interrupted_is_done_again(self, backend: Backend, at: int, when: When) -> None:
        crash_after_chunks(backend, "job", TEN, 2)
        expand_log(backend, 4)
        run_rest(backend, "job", TEN)
        with pytest.raises(InjectedFaultError):
            forget_job(FaultyLog(backend, Fault("forget", at, when)), "job", in_hours(1))
        assert len(backend.jobs()) == (2 if (at, when) == (1, When.BEFORE) else 1)
        with self.reopen(backend) as log:
            forget_job(log, "job", in_hours(1))
            assert log.jobs() == ()
            assert run_job(log, "job", TEN).rows == _ALL

    def test_a_partition_that_others_wrote_to_meanwhile(self, backend: Backend) -> None:
        run_job(backend, "job", TEN)
        append_foreign(backend, 0, "x")
        forget_job(backend, "job", in_hours(1))
        append_foreign(backend, 0, "y")
        run_job(backend, "job", rows_of(1, 0))
        assert values_in(backend, 0) == [*TEN[0], "x", "y", "0.0"]
