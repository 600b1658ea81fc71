"""Concurrent writers."""

from functools import partial
from itertools import count
from typing import Literal

import pytest

from spark_cas.core.errors import InputChangedError
from spark_cas.core.outcome import Appended, Conflict, Fenced, Outcome
from spark_cas.core.plan import BY_KEY, BY_PARTITION, Plan
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_once import append_once
from tests.contract.base import ContractBase, at_once, eager_switching
from tests.support.faults import Fault, FaultyLog, When
from tests.support.loads import run_job, void
from tests.support.raising import raises
from tests.support.writing import (
    JobWriter,
    append_foreign,
    claim_of,
    plan_of,
    table_of,
    values_in,
)


class RaceContract(ContractBase):
    """With any concurrency, the log is the same as after some sequence of appends."""

    def test_of_two_jobs_with_one_expectation_at_most_one_appends(self, backend: Backend) -> None:
        expected: list[str] = []
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(self.rounds):
                writers = [
                    JobWriter(log, plan_of(backend, f"{name}-{round_}"))
                    for name, log in [("a", backend), ("b", other)]
                ]
                chunks = [[f"{name}-{round_}-{row}" for row in range(3)] for name in "ab"]
                outcomes = at_once(
                    *(partial(writer.append, table_of(chunk)) for writer, chunk in zip(writers, chunks, strict=True))
                )
                won = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, Appended)]
                assert len(won) <= 1, outcomes
                for at, outcome in enumerate(outcomes):
                    if at in won:
                        expected += chunks[at]
                    elif outcome != Fenced(None) or not self.claims_fence:
                        claimed = writers[at].claim.expected_offset
                        assert claimed is not None
                        assert outcome == Conflict(claimed, backend.bounds(0).end_offset, 0)
        assert expected, "no attempt ever succeeded"
        assert values_in(backend, 0) == values_in(other, 0) == expected

    def test_of_many_attempts_with_one_claim_at_most_one_appends(self, backend: Backend) -> None:
        expected: list[str] = []
        with self.reopen(backend) as other, eager_switching():
            for round_, mode in zip(range(self.rounds // 2), ["end", "none"] * self.rounds, strict=False):
                plan = plan_of(backend, f"job-{round_}", mode)
                claim = claim_of(backend, 0, plan)
                chunk = JobWriter(backend, plan).chunk(table_of([f"{round_}"]))
                outcomes = at_once(*(partial(log.append, claim, chunk) for log in [backend, other] * 2))
                won = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
                assert len(won) <= 1
                refused = [each for each in outcomes if each not in won]
                if self.claims_fence:  # another claim can fence it even without an append
                    refused = [Fenced("run/0") if each == Fenced(None) else each for each in refused]
                assert refused == [Fenced("run/0")] * (4 - len(won))
                expected += [f"{round_}"] * len(won)
        assert expected, "no attempt ever succeeded"
        assert values_in(backend, 0) == expected

    def test_attempts_that_follow_their_own_claims_repeat_nothing(self, backend: Backend) -> None:
        """Two attempts of an unchecked job, each until it is fenced, with appends of other jobs in between."""
        values = [f"{at}" for at in range(6)]

        def attempt(log: Backend, plan: Plan, task: str) -> Outcome | None:
            writer = JobWriter(log, plan, task=task)
            done = writer.claim.progress.rows if writer.claim.progress else 0
            outcome = None
            for value in values[done:]:
                outcome = writer.append(table_of([f"{plan.job}/{value}"]))
                if not isinstance(outcome, Appended):
                    break
            return outcome

        with self.reopen(backend) as other, eager_switching():
            for round_ in range(self.rounds // 10):
                job = f"job-{round_}"
                plan = plan_of(backend, job, "none")  # one plan for all attempts, made before the first
                foreign = plan_of(backend, f"foreign-{round_}", "none")
                outcomes = at_once(
                    partial(attempt, backend, plan, "one/0"),
                    partial(attempt, other, plan, "two/0"),
                    partial(attempt, other, foreign, "x/0"),
                )
                assert all(outcome is None or isinstance(outcome, Appended | Fenced) for outcome in outcomes)
                attempt(backend, plan, "three/0")
                ours = [value for value in values_in(backend, 0) if value.startswith(f"{job}/")]
                assert ours == [f"{job}/{value}" for value in values]

    def test_run_overtaken_by_another_during_planning_is_no_conflict(self, backend: Backend) -> None:
        rows = {0: ["a", "b", "c"]}
        first = Fault("bounds_of", 1, When.BEFORE, lambda: void(run_job(backend, "job", rows, expected='{"0": 0}')))
        done = run_job(FaultyLog(backend, first), "job", rows, expected='{"0": 0}', run="run-2")
        assert done.rows == len(rows[0])
        assert values_in(backend, 0) == rows[0]

    @pytest.mark.parametrize("compare", [BY_PARTITION, BY_KEY])
    @pytest.mark.parametrize("expected_offset", [0, None])
    def test_single_append_overtaken_by_another_call_is_resolved(
        self, backend: Backend, expected_offset: int | None, compare: Literal["partition", "key"]
    ) -> None:
        first = []

        def append(log: Backend, value: str) -> Outcome:
            return append_once(log, 0, table_of([value]), job="one", expected_offset=expected_offset, compare=compare)

        def overtake() -> None:
            with self.reopen(backend) as other:
                first.append(append(other, "a"))

        late = append(FaultyLog(backend, Fault("append", 1, When.BEFORE, overtake)), "a")
        assert isinstance(first[0], Appended)
        assert isinstance(late, Appended), late
        assert (late.range, late.resolved, values_in(backend, 0)) == (first[0].range, True, ["a"])

    def test_single_append_overtaken_with_other_records_is_rejected(self, backend: Backend) -> None:
        def append(log: Backend, value: str) -> Outcome:
            return append_once(log, 0, table_of([value]), job="one", expected_offset=0)

        first = Fault("append", 1, When.BEFORE, lambda: void(append(backend, "a")))
        with raises(InputChangedError, job="one"):
            append(FaultyLog(backend, first), "b")
        assert values_in(backend, 0) == ["a"]

    def test_unchecked_jobs_at_once_all_append_each_in_order(self, backend: Backend) -> None:
        chunks = self.rounds // 10

        def write(log: Backend, job: str) -> None:
            writer = JobWriter(log, plan_of(backend, job, "none"))
            for chunk in range(chunks):
                writer.must_append(f"{job}.{chunk}", f"{job}.{chunk}'")

        with self.reopen(backend) as other, eager_switching():
            at_once(*(partial(write, log, job) for job, log in zip("pqrs", [backend, other] * 2, strict=True)))
        values = values_in(backend, 0)
        for job in "pqrs":
            ours = [value for value in values if value.startswith(job)]
            assert ours == [f"{job}.{chunk}{end}" for chunk in range(chunks) for end in ("", "'")]
        assert len(values) == 8 * chunks

    def test_readers_never_see_half_a_chunk(self, backend: Backend) -> None:
        chunks = self.rounds // 10
        expected = [f"{at}" for at in range(3 * chunks)]

        def write() -> list[str]:
            writer = JobWriter(backend, plan_of(backend, "job"))
            for at in range(0, 3 * chunks, 3):
                writer.must_append(*expected[at : at + 3])
            return expected

        def read(log: Backend) -> list[str]:
            seen: list[str] = []
            while len(seen) < len(expected):
                before, seen = seen, values_in(log, 0)
                assert len(seen) >= len(before)
                assert len(seen) % 3 == 0
                assert seen == expected[: len(seen)]
            return seen

        with self.reopen(backend) as other, eager_switching():
            assert at_once(write, partial(read, other)) == [expected, expected]

    def test_trimming_while_others_append(self, backend: Backend) -> None:
        chunks = self.rounds // 10

        def write(log: Backend, name: str) -> int:
            appended = 0
            for at in count():
                outcome = JobWriter(log, plan_of(log, f"{name}-{at}")).append(table_of([f"{name}-{at}"]))
                fenced = self.claims_fence and outcome == Fenced(None)
                assert fenced or isinstance(outcome, Appended | Conflict), outcome
                appended += isinstance(outcome, Appended)
                if appended == chunks:
                    return at
            raise AssertionError

        def trim(log: Backend) -> int:
            while (bounds := log.bounds(0)).end_offset < chunks:  # both are still appending
                assert log.trim(0, bounds.end_offset).start_offset >= bounds.start_offset
            return bounds.end_offset

        with self.reopen(backend) as other, eager_switching():
            at_once(partial(write, backend, "a"), partial(write, other, "b"), partial(trim, other))
        last = {name: [value for value in values_in(backend, 0) if value.startswith(name)] for name in "ab"}
        assert all(values == sorted(values, key=lambda value: int(value[2:])) for values in last.values())
        append_foreign(backend, 0, "x")
