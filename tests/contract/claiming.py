"""Expected offsets of rows (KIP-27), as docs/condition-row.md defines them."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest

from spark_cas.core.errors import ConflictError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Conflict, Fenced, Outcome, RowConflict
from spark_cas.core.plan import Completion
from spark_cas.core.row_claims import CLAIMED
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.base import ContractBase, at_once, eager_switching
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import LIMITS, void
from tests.support.writing import JobWriter, append_foreign, plan_of, records_in, table_of, values_in

ROWS = [f"{at}" for at in range(10)]


def claimed(values: list[str], claims: list[int | None], size: int = 4) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows for partition 0 with their expected offsets, in batches of ``size``."""
    for at in range(0, len(values), size):
        (records,) = table_of(values[at : at + size]).combine_chunks().to_batches()
        expected = pa.array(claims[at : at + size], pa.int64())
        yield 0, pa.RecordBatch.from_arrays([*records.columns, expected], schema=CLAIMED)


def run_claimed(
    log: Backend, job: str, claims: list[int | None], *, expected: str = "end", run: str = "run"
) -> Completion:
    """Run a job of ten rows in chunks of three."""
    plan = pin_plan(log, job, ExpectedOffsets.parse(expected))
    return complete_job(log, plan, append_rows(log, plan, claimed(ROWS, claims), task=f"{run}/0", limits=LIMITS))


def numbered(base: int) -> list[int | None]:
    """Return ten consecutive expected offsets, one for each row."""
    return [base + at for at in range(10)]


class RowClaimContract(ContractBase):
    """Each row gets its expected offset, or its chunk is rejected and the error names the row."""

    @pytest.mark.parametrize("mode", ["end", "none"])
    def test_rows_that_count_on_from_the_end_are_appended_in_any_number_of_chunks(
        self, backend: Backend, mode: str
    ) -> None:
        end = append_foreign(backend, 0, "x").range.end_offset
        done = run_claimed(backend, "job", numbered(end), expected=mode)
        assert done.partitions[0].progress.chunks == -(-len(ROWS) // LIMITS.max_records)
        assert values_in(backend, 0) == ["x", *ROWS]

    @pytest.mark.parametrize("mode", ["end", "none"])
    def test_killed_job_resumes_with_the_same_expected_offsets(self, backend: Backend, mode: str) -> None:
        end = append_foreign(backend, 0, "x").range.end_offset
        with pytest.raises(InjectedFaultError):
            run_claimed(FaultyLog(backend, Fault("append", 3, When.AFTER)), "job", numbered(end), expected=mode)
        run_claimed(backend, "job", numbered(end), expected=mode, run="run-2")
        assert values_in(backend, 0) == ["x", *ROWS]

    def test_the_first_row_that_does_not_hold_is_named_and_a_prefix_is_kept(self, backend: Backend) -> None:
        claims = numbered(0)
        claims[7:] = [20, 21, 22]
        with pytest.raises(ConflictError) as raised:
            run_claimed(backend, "job", claims)
        assert (raised.value.partition, raised.value.row, raised.value.expected_offset) == (0, 7, 20)
        assert values_in(backend, 0) == ROWS[:6]
        claims[6:] = [None, -1, None, None]
        run_claimed(backend, "job", claims, run="run-2")
        assert values_in(backend, 0) == ROWS

    def test_result_of_each_expected_offset(self, backend: Backend) -> None:
        append_foreign(backend, 0, "x", "y")
        base, newest = backend.bounds(0).end_offset, records_in(backend, 0)[-1][0]
        cases: list[tuple[list[int | None], tuple[int, int, bool] | None]] = [
            ([newest], (0, newest, False)),
            ([0], (0, 0, False)),
            ([base + 1], (0, base + 1, True)),
            ([None, base + 2], (1, base + 2, True)),
            ([base, base + 2], (1, base + 2, False)),
            ([base, newest + 1], (1, newest + 1, False)),
            ([None, None, newest + 2], (2, newest + 2, False)),
            ([-1, base + 1, None], None),
        ]
        writer = JobWriter(backend, plan_of(backend, "job", "none"))
        before = records_in(backend, 0)
        for claims, refused in cases:
            outcome = writer.append(table_of("abc"[: len(claims)]), claims=claims)
            if refused is None:
                assert isinstance(outcome, Appended), claims
            else:
                row, expected, truncated = refused
                assert outcome == RowConflict(row, expected, base + row, truncated), claims
                assert records_in(backend, 0) == before
        assert values_in(backend, 0) == ["x", "y", "a", "b", "c"]

    def test_without_a_claim_on_the_partition_only_rows_with_claims_mind_others(self, backend: Backend) -> None:
        def barging(call: int) -> FaultyLog:
            return FaultyLog(
                backend, Fault("append", call, When.BEFORE, lambda: void(append_foreign(backend, 0, "x")))
            )

        claims = numbered(0)
        with pytest.raises(ConflictError) as raised:
            run_claimed(barging(2), "job", claims, expected="none")
        assert (raised.value.row, raised.value.expected_offset) == (3, 3)
        assert values_in(backend, 0) == [*ROWS[:3], "x"]
        run_claimed(barging(1), "job", [*claims[:3], *[None] * 7], expected="none", run="run-2")
        assert values_in(backend, 0) == [*ROWS[:3], "x", "x", *ROWS[3:]]

    @pytest.mark.parametrize("mode", ["end", "none"])
    def test_partitions_that_are_added_take_no_claim_away(self, backend: Backend, mode: str) -> None:
        newest = append_foreign(backend, 0, "x").range.base_offset
        expand_log(backend, self.partitions + 1)
        writer = JobWriter(backend, plan_of(backend, "job", mode if mode == "none" else f'{{"0": {newest + 1}}}'))
        base = backend.bounds(0).end_offset
        refused = writer.append(table_of("ab"), claims=[None, newest + 1])
        assert refused == RowConflict(1, newest + 1, base + 1, truncated=False)
        assert isinstance(writer.append(table_of("ab"), claims=[newest + 1, newest + 2]), Appended)
        assert isinstance(writer.append(table_of("c"), claims=[newest + 3]), Appended)
        assert values_in(backend, 0) == ["x", "a", "b", "c"]

    def test_of_two_jobs_whose_rows_expect_the_same_at_most_one_appends(self, backend: Backend) -> None:
        def attempt(log: Backend, job: str, end: int) -> Outcome:
            writer = JobWriter(log, plan_of(backend, job, "none"))
            return writer.append(table_of([f"{job}-a", f"{job}-b"]), claims=[None, end + 1])

        won = 0
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(self.rounds // 4):
                end = backend.bounds(0).end_offset
                before = len(values_in(backend, 0))
                calls = [
                    partial(attempt, log, f"{name}-{round_}", end) for name, log in [("p", backend), ("q", other)]
                ]
                outcomes = at_once(*calls)
                assert all(isinstance(each, Appended | RowConflict | Conflict | Fenced) for each in outcomes), (
                    outcomes
                )
                appended = [each for each in outcomes if isinstance(each, Appended)]
                assert len(appended) <= 1, outcomes
                assert len(values_in(backend, 0)) == before + 2 * len(appended)
                won += len(appended)
        assert won, "no attempt ever succeeded"
