"""Plans, completions and cancelled runs: the first writer wins."""

from dataclasses import replace
from functools import partial

from spark_cas.core.outcome import Appended
from spark_cas.core.plan import Completion, PartitionResult, Replacement
from spark_cas.log.backend import Backend
from spark_cas.log.load.cancelling import Rejection, cancel_run, rejection_from_json
from tests.contract.base import ContractBase, at_once, eager_switching
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of


def completion_of(backend: Backend, job: str, at_ms: int) -> Completion:
    """Append the rows of a job in partition 0 and return its completion."""
    writer = JobWriter(backend, plan_of(backend, job, "none"))
    assert isinstance(writer.append(table_of("ab"), complete=True), Appended)
    progress = writer.claim.progress
    assert progress is not None
    layout = backend.layout()
    return Completion(job, layout.log_id, layout.epoch, (PartitionResult(progress, 1, 0),), at_ms)


class RegistryContract(ContractBase):
    """The plan and completion of a job are the same for all readers and never change."""

    def test_unknown_jobs(self, backend: Backend) -> None:
        assert backend.plan("job") is None
        assert backend.completion("job") is None
        assert backend.jobs() == ()

    def test_the_first_plan_of_a_job_stays(self, backend: Backend) -> None:
        first = plan_of(backend, "job")
        assert backend.record_plan(first) == first
        append_foreign(backend, 0, "x")
        second = plan_of(backend, "job", "none")
        assert second != first
        with self.reopen(backend) as other:
            assert other.record_plan(second) == first
            assert other.plan("job") == first
        assert backend.record_plan(first) == first
        assert backend.plan("job") == first

    def test_all_of_a_plan_is_kept(self, backend: Backend) -> None:
        plan = replace(
            plan_of(backend, "job", '{"0": 9223372036854775807, "1": null}'),
            replaced=(Replacement(1, 5, None), Replacement(2, 0, 17)),
        )
        backend.record_plan(plan)
        with self.reopen(backend) as other:
            assert other.plan("job") == plan

    def test_the_first_completion_of_a_job_stays(self, backend: Backend) -> None:
        first = completion_of(backend, "job", at_ms=1)
        assert backend.record_completion(first) == first
        with self.reopen(backend) as other:
            assert other.record_completion(replace(first, completed_at_ms=2)) == first
            assert other.completion("job") == first
        assert backend.completion("job") == first
        assert backend.completion("another") is None

    def test_jobs_are_those_that_have_a_plan(self, backend: Backend) -> None:
        for job in ["b", "c.1", "a-2", "B_"]:
            backend.record_plan(plan_of(backend, job))
        append_foreign(backend, 0, "x")
        with self.reopen(backend) as other:
            assert other.jobs() == ("B_", "a-2", "b", "c.1")

    def test_a_run_is_cancelled_until_its_driver_removes_that(self, backend: Backend) -> None:
        backend.record_plan(plan_of(backend, "job"))
        first, second = (Rejection("CONFLICT", text, (2, 1)) for text in ("first [FENCED] \u00e9", "second"))
        assert backend.entry("cancelled", "run-1") is None
        cancel_run(backend, "run-1", first)
        with self.reopen(backend) as other:
            cancel_run(other, "run-1", second)
            assert rejection_from_json(other.entry("cancelled", "run-1") or "") == first
            assert other.entry("cancelled", "run-2") is None, "another run of the same job"
            assert other.jobs() == ("job",)
            other.remove_cancelled("run-1")
            other.remove_cancelled("run-1")
        assert backend.entry("cancelled", "run-1") is None

    def test_of_two_plans_at_once_one_wins_for_both(self, backend: Backend) -> None:
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(self.rounds // 5):
                one = plan_of(backend, f"job-{round_}")
                two = replace(one, expected_offsets=(None,) * self.partitions)
                answers = at_once(
                    partial(backend.record_plan, one),
                    partial(other.record_plan, two),
                )
                assert answers[0] == answers[1] == backend.plan(one.job) == other.plan(one.job)
                assert answers[0] in (one, two)

    def test_of_two_completions_at_once_one_wins_for_both(self, backend: Backend) -> None:
        some = completion_of(backend, "job", at_ms=1)
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(self.rounds // 5):
                one = replace(some, job=f"job-{round_}")
                two = replace(one, completed_at_ms=2)
                answers = at_once(
                    partial(backend.record_completion, one),
                    partial(other.record_completion, two),
                )
                assert answers[0] == answers[1] == backend.completion(one.job) == other.completion(one.job)
                assert answers[0] in (one, two)
