"""Expected offsets of keys (compare=key), as docs/condition-key.md defines them."""

from functools import partial

import pyarrow as pa
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConflictError, ExpectedOffsetError, JobMismatchError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, KeyConflict, Outcome, Truncated
from spark_cas.core.plan import BY_KEY, Completion
from spark_cas.core.row_claims import CLAIMED
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.base import ContractBase, at_once, eager_switching
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import LIMITS, void
from tests.support.writing import append_foreign, records_in, table_of, values_in

Rows = list[tuple[str | None, int | None]]
"""Rows of (key, expected offset). The value is the number of the row."""


def run_keyed(
    log: Backend,
    job: str,
    rows: Rows,
    *,
    expected: str = "none",
    run: str = "run",
    column: bool = True,
    limits: ChunkLimits = LIMITS,
) -> Completion:
    """Run a job with compare=key, in chunks of three unless ``limits`` differ."""
    records = [
        {"key": key and key.encode(), "value": b"%d" % row, "expected_offset": claim}
        for row, (key, claim) in enumerate(rows)
    ]
    batch = pa.RecordBatch.from_pylist(records, CLAIMED)
    plan = pin_plan(log, job, ExpectedOffsets.parse(expected), compare=BY_KEY)
    given = batch if column else batch.select(["key", "value", "headers", "timestamp"])
    results = append_rows(log, plan, [(0, given)], task=f"{run}/0", limits=limits)
    return complete_job(log, plan, results)


def keyed_once(log: Backend, key: str, job: str, expected_offset: int) -> Outcome:
    """Append one record with its key as value if its key has no newer record."""
    return append_once(log, 0, table_of([key]), job=job, expected_offset=expected_offset, compare="key")


def barged_in(log: Backend, call: int, key: str) -> FaultyLog:
    """Return a log in which another writer appends a record of a key before append number ``call``."""
    return FaultyLog(log, Fault("append", call, When.BEFORE, lambda: void(append_foreign(log, 0, key))))


class KeyClaimContract(ContractBase):
    """A chunk is appended if the keys of its rows have no newer records. Records of other keys have no effect."""

    def test_a_record_of_the_key_refuses_the_chunk_and_one_of_another_key_does_not(self, backend: Backend) -> None:
        append_foreign(backend, 0, "x", "y")
        end = backend.bounds(0).end_offset
        (x, _), (y, _) = records_in(backend, 0)
        assert keyed_once(backend, "x", "stale-x", x) == KeyConflict(0, "x", x, x, end)
        assert keyed_once(backend, "y", "seen-y", 0) == KeyConflict(0, "y", 0, y, end)
        assert keyed_once(backend, "x", "past", end + 1) == Truncated(end + 1, end)
        assert values_in(backend, 0) == ["x", "y"]
        assert isinstance(keyed_once(backend, "x", "seen-x", x + 1), Appended)
        assert isinstance(keyed_once(backend, "new", "new", 0), Appended)
        assert isinstance(keyed_once(backend, "y", "seen-y", y + 1), Appended)
        assert values_in(backend, 0) == ["x", "y", "x", "new", "y"]

    def test_one_row_refuses_its_chunk_and_what_is_kept_is_a_prefix(self, backend: Backend) -> None:
        append_foreign(backend, 0, "x")
        ((offset, _),) = records_in(backend, 0)
        rows: Rows = [("a", 0), ("b", None), (None, None), ("c", 0), ("x", offset), ("d", -1)]
        with pytest.raises(ConflictError) as raised:
            run_keyed(backend, "job", rows)
        assert (raised.value.row, raised.value.actual_offset) == (4, offset)
        assert values_in(backend, 0) == ["x", "0", "1", "2"]
        rows[4] = ("x", offset + 1)
        run_keyed(backend, "job", rows, run="run-2")
        assert values_in(backend, 0) == ["x", "0", "1", "2", "3", "4", "5"]

    @pytest.mark.parametrize("column", [True, False])
    def test_rows_of_one_key_form_a_chain_in_and_over_chunks(self, backend: Backend, *, column: bool) -> None:
        append_foreign(backend, 0, "k")
        end = backend.bounds(0).end_offset
        rows: Rows = [("k", end)] * 10
        with pytest.raises(InjectedFaultError):
            run_keyed(
                FaultyLog(backend, Fault("append", 2, When.AFTER)),
                "job",
                rows,
                expected=f'{{"0": {end}}}',
                column=column,
            )
        append_foreign(backend, 0, "other")
        run_keyed(backend, "job", rows, expected=f'{{"0": {end}}}', run="run-2", column=column)
        chain = [f"{row}" for row in range(10)]
        assert values_in(backend, 0) == ["k", *chain[:6], "other", *chain[6:]]

    def test_a_job_is_refused_by_others_records_of_its_key_between_its_chunks(self, backend: Backend) -> None:
        with pytest.raises(ConflictError) as raised:
            run_keyed(barged_in(backend, 2, "k"), "job", [("k", 0)] * 10)
        assert (raised.value.row, raised.value.expected_offset) == (3, 0)
        assert values_in(backend, 0) == ["0", "1", "2", "k"]

    def test_a_job_is_not_refused_by_its_own_rows_however_many_chunks_they_are(self, backend: Backend) -> None:
        rows: Rows = [("k", 0 if row % 2 else None) for row in range(70)]
        single = ChunkLimits(max_records=1)
        with pytest.raises(InjectedFaultError):
            run_keyed(FaultyLog(backend, Fault("append", 67, When.AFTER)), "job", rows, limits=single)
        progress = backend.progress(0, "job")
        assert progress is not None
        ((base, _),) = progress.own_ranges
        assert base == progress.base_offset
        append_foreign(backend, 0, "other")
        run_keyed(backend, "job", rows, run="run-2", limits=single)
        progress = backend.progress(0, "job")
        assert progress is not None
        (_, first_end), (second_base, _) = progress.own_ranges
        ((other, _),) = [each for each in records_in(backend, 0) if each[1]["key"] == b"other"]
        assert first_end <= other < second_base

    def test_without_the_column_all_rows_expect_what_the_plan_says(self, backend: Backend) -> None:
        append_foreign(backend, 0, "k")
        run_keyed(backend, "pinned", [("k", None)], expected="end", column=False)
        with pytest.raises(ConflictError) as raised:
            run_keyed(backend, "given", [("new", None), ("k", None)], expected='{"0": 0}', column=False)
        assert (raised.value.row, raised.value.expected_offset) == (1, 0)
        assert values_in(backend, 0) == ["k", "0"]

    def test_other_keys_that_come_in_between_only_cost_another_try(self, backend: Backend) -> None:
        faulty = barged_in(backend, 1, "other")
        (result,) = run_keyed(faulty, "job", [("k", 0), ("l", None)]).partitions
        assert values_in(backend, 0) == ["other", "0", "1"]
        assert (faulty.calls["append"], result.progress.chunks, result.appends.attempts) == (1 + 1, 1, 1 + 1)

    def test_the_key_itself_coming_in_between_is_seen(self, backend: Backend) -> None:
        with pytest.raises(ConflictError) as raised:
            run_keyed(barged_in(backend, 1, "k"), "job", [("l", 0), ("k", 0)])
        assert (raised.value.row, raised.value.expected_offset) == (1, 0)
        assert values_in(backend, 0) == ["k"]

    def test_rows_of_the_job_that_another_attempt_appended_in_between_are_no_conflict(self, backend: Backend) -> None:
        rows: Rows = [("k", 0), ("l", 0), ("k", None), ("m", 0)]
        other = Fault("claim", 1, When.AFTER, lambda: void(run_keyed(backend, "load", rows, run="run-2")))
        (result,) = run_keyed(FaultyLog(backend, other), "load", rows).partitions
        end = backend.bounds(0).end_offset
        again = Fault("claim", 1, When.AFTER, lambda: void(keyed_once(backend, "n", "once", end)))
        first = keyed_once(FaultyLog(backend, again), "n", "once", end)
        assert isinstance(first, Appended)
        assert first.resolved
        assert first == keyed_once(FaultyLog(backend), "n", "once", end) == keyed_once(backend, "n", "once", end)
        assert result.progress.rows == len(rows)
        assert values_in(backend, 0) == ["0", "1", "2", "3", "n"]

    def test_what_was_trimmed_unseen_may_have_been_of_the_key(self, backend: Backend) -> None:
        first = append_foreign(backend, 0, "k").range.end_offset
        append_foreign(backend, 0, "x")
        start = backend.trim(0, first).start_offset
        end = backend.bounds(0).end_offset
        assert keyed_once(backend, "l", "never", 0) == KeyConflict(0, "l", 0, None, end)
        assert isinstance(keyed_once(backend, "l", "since", start), Appended)

    def test_a_claim_on_no_key_is_refused_by_name(self, backend: Backend) -> None:
        with pytest.raises(ExpectedOffsetError) as raised:
            run_keyed(backend, "job", [("k", 0), (None, 0)])
        assert raised.value.row == 1
        with pytest.raises(ExpectedOffsetError) as raised:
            run_keyed(backend, "default", [("k", None), ("l", None), (None, None)], expected="end", column=False)
        assert raised.value.row == 2
        assert values_in(backend, 0) == []
        run_keyed(backend, "unchecked", [(None, None), (None, -1)])
        assert values_in(backend, 0) == ["0", "1"]

    def test_a_job_keeps_what_it_compares(self, backend: Backend) -> None:
        run_keyed(backend, "job", [("k", 0)])
        with pytest.raises(JobMismatchError, match=r"planned with compare=key, .* with compare=partition"):
            pin_plan(backend, "job", ExpectedOffsets("none"))
        pin_plan(backend, "other", ExpectedOffsets("none"))
        with pytest.raises(JobMismatchError, match=r"planned with compare=partition, .* with compare=key"):
            pin_plan(backend, "other", ExpectedOffsets("none"), compare=BY_KEY)

    def test_of_writers_that_expect_the_same_of_one_key_just_one_appends(self, backend: Backend) -> None:
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(self.rounds // 10):
                end = backend.bounds(0).end_offset
                calls = [
                    partial(keyed_once, log, key, f"{round_}-{job}", end)
                    for job, (key, log) in enumerate([("k", backend), ("k", other), ("l", backend), ("m", other)])
                ]
                outcomes = at_once(*calls)
                assert sum(isinstance(each, Appended) for each in outcomes[:2]) == 1, outcomes
                assert sum(isinstance(each, KeyConflict) for each in outcomes[:2]) == 1, outcomes
                assert all(isinstance(each, Appended) for each in outcomes[2:]), outcomes
        values = values_in(backend, 0)
        assert [values.count(key) for key in "klm"] == [self.rounds // 10] * 3
