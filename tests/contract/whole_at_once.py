"""Atomic loads with concurrent commits, aborts, reads and appends."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from spark_cas.core.errors import ConflictError, FencedError, InputChangedError, RefusedError
from spark_cas.core.outcome import Appended, Fenced
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.core.row_claims import CLAIMED
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.atomic_load import abort_group, commit_group, hold_named
from spark_cas.log.load.planning import complete_job
from tests.contract.base import ContractBase, at_once, eager_switching
from tests.contract.whole import (
    NOTHING,
    ROWS,
    bounded,
    everything,
    pin,
    run_whole,
    tasks,
)
from tests.support.faults import Fault, FaultyLog, When
from tests.support.loads import LIMITS, Rows, batches_of, load
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of, values_in


def numbered(rows: Rows) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows, each with its offset in an empty log as its expected offset."""
    counts: Counter[int] = Counter()
    for partition, batch in batches_of(rows, 2):
        first, counts[partition] = counts[partition], counts[partition] + batch.num_rows
        offsets = pa.array(range(first, counts[partition]), pa.int64())
        yield partition, pa.RecordBatch.from_arrays([*batch.columns, offsets], schema=CLAIMED)


class WholeAtOnceContract(ContractBase):
    """Readers see all rows of a load or none, despite concurrent writers. For backends with commit groups."""

    def test_of_deciders_at_once_one_decides(self, backend: Backend) -> None:
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(max(2, self.rounds // 20)):
                job, before = f"job-{round_}", everything(backend)
                plan = pin(backend, job)
                results = tasks(backend, plan, ROWS)

                def commit(plan: Plan = plan, results: tuple[PartitionResult, ...] = results) -> bool:
                    try:
                        commit_group(backend, plan, results)
                    except FencedError:
                        return False
                    return True

                def abort(plan: Plan = plan) -> bool:
                    abort_group(other, plan)
                    return True

                committed, _ = at_once(commit, abort)
                after = {each: [*before[each], *ROWS[each]] for each in before} if committed else before
                assert everything(backend) == everything(other) == after

    def test_later_writer_waits_for_the_decision(self, backend: Backend) -> None:
        for commits in (True, False):
            before = values_in(backend, 0)
            behind = plan_of(backend, f"other-{commits}", "none")
            plan = pin(backend, f"job-{commits}")
            results = tasks(backend, plan, ROWS)

            commit, abort = partial(complete_job, backend, plan, results), partial(abort_group, backend, plan)
            deciding = threading.Timer(0.3, commit if commits else abort)
            with self.reopen(backend) as other:
                writer = JobWriter(other, behind)
                deciding.start()
                assert isinstance(writer.append(table_of(["later"])), Appended)
                deciding.join()
                assert values_in(other, 0) == [*before, *(ROWS[0] if commits else []), "later"]

    def test_writer_aborts_an_overdue_load(self, backend: Backend) -> None:
        plan = replace(pin(backend, "dead"), decide_by_ms=1)
        results = tasks(backend, plan, ROWS)
        with self.reopen(backend) as other:
            append_foreign(other, 1, "next")
            assert everything(other) == NOTHING | {1: ["next"]}
        with pytest.raises(FencedError):
            complete_job(backend, plan, results)
        assert everything(backend) == NOTHING | {1: ["next"]}

    def test_abandoned_task_adds_nothing_to_a_decided_load(self, backend: Backend) -> None:
        with self.reopen(backend) as other:
            plan = pin(backend, "job")
            slow = JobWriter(other, plan, 2)
            complete_job(backend, plan, tasks(backend, plan, {0: ROWS[0], 1: ROWS[1]}))
            outcome = slow.append(table_of(["late"]))
            assert isinstance(outcome, Appended | Fenced)
            assert everything(backend) == {0: ROWS[0], 1: ROWS[1], 2: []}
            append_foreign(backend, 2, "next")
            assert values_in(other, 2) == ["next"]

    @pytest.mark.parametrize("by_row", [False, True])
    def test_attempt_at_an_aborted_load_has_no_conflict_with_another_attempt(
        self, backend: Backend, by_row: bool
    ) -> None:
        plan = pin(backend, "job", "none" if by_row else "end")

        def attempt(log: Backend) -> tuple[PartitionResult, ...]:
            batches = numbered(ROWS) if by_row else batches_of(ROWS, 2)
            return append_rows(log, plan, batches, task="run/0", limits=LIMITS, fenced_retry_wait_seconds=0.0)

        def overtake() -> None:
            abort_group(backend, plan)
            with suppress(FencedError):
                attempt(backend)

        with pytest.raises(FencedError):
            complete_job(backend, plan, attempt(FaultyLog(backend, Fault("append", 2, When.BEFORE, overtake))))
        assert everything(backend) == NOTHING

    def test_readers_never_see_a_part(self, backend: Backend) -> None:
        loads = max(3, self.rounds // 20)
        done = threading.Event()

        def write() -> None:
            for number in range(loads):
                plan = pin(backend, f"job-{number}")
                results = tasks(backend, plan, {each: [f"{number}"] * 4 for each in range(3)})
                if number % 3 == 1:
                    abort_group(backend, plan)
                else:
                    complete_job(backend, plan, results)
            done.set()

        def read(log: Backend) -> None:
            while not done.is_set():
                seen = bounded(log)
                assert seen[0] == seen[1] == seen[2]
                assert set(Counter(seen[0]).values()) <= {4}

        with self.reopen(backend) as other, eager_switching():
            at_once(write, partial(read, other))

    def test_of_loads_that_expect_the_same_at_most_one_is_visible(self, backend: Backend) -> None:
        """No lock serializes the loads, and they append to their partitions in any order."""
        with self.reopen(backend) as other, eager_switching():
            for round_ in range(max(3, self.rounds // 50)):
                before = everything(backend)
                plans = [pin(log, f"{name}-{round_}") for name, log in (("a", backend), ("b", other))]

                def attempt(log: Backend, plan: Plan, order: list[int]) -> bool:
                    plan = replace(plan, decide_by_ms=0)  # other loads can abort this one at once
                    try:
                        results = [
                            each
                            for partition in order
                            for each in load(
                                log, plan, {partition: [plan.job] * 4}, task=f"{plan.job}/{partition}", wait=0.2
                            )
                        ]
                        complete_job(log, plan, tuple(results))
                    except RefusedError:
                        abort_group(log, plan)
                        return False
                    return True

                orders = [[0, 1, 2], [2, 1, 0] if round_ % 2 else [0, 2, 1]]
                won = at_once(
                    partial(attempt, backend, plans[0], orders[0]), partial(attempt, other, plans[1], orders[1])
                )
                assert sum(won) <= 1
                after = everything(other)
                for partition, values in after.items():
                    expected = [plan.job for plan, one in zip(plans, won, strict=True) for _ in range(4) if one]
                    assert values == before[partition] + expected

    def test_named_partition_without_rows_is_checked_at_the_commit(self, backend: Backend) -> None:
        """Another writer that appends after the last check and before the commit waits for the outcome."""
        append_foreign(backend, 2, "seen")
        plan = pin(backend, "job", '{"0": 0, "1": null, "2": 1}')
        results = tasks(backend, plan, {0: ROWS[0]})
        hold_named(backend, plan, (1, 2))
        with self.reopen(backend) as other:
            behind = JobWriter(other, plan_of(other, "behind", "none"), 2)
            append_foreign(other, 1, "nothing was expected of it")
            deciding = threading.Timer(0.3, partial(commit_group, backend, plan, results))
            deciding.start()
            assert isinstance(behind.append(table_of(["later"])), Appended)
            by_then = everything(other)[0]
            deciding.join()
            assert by_then == ROWS[0], "the load was decided"
        assert everything(backend) == {0: ROWS[0], 1: ["nothing was expected of it"], 2: ["seen", "later"]}

    def test_where_a_partition_that_it_names_is_not_as_expected_it_leaves_nothing(self, backend: Backend) -> None:
        in_between = JobWriter(backend, plan_of(backend, "other"), 2)
        plan = pin(backend, "job", '{"0": 0, "1": 0, "2": 0}')
        results = tasks(backend, plan, {0: ROWS[0]})
        in_between.must_append("in between")
        with pytest.raises(ConflictError, match=r"partition 2.*Nothing of it is visible"):
            complete_job(backend, plan, results)
        with pytest.raises(ConflictError) as raised:
            hold_named(backend, plan, (1, 2))
        assert raised.value.partition == 2
        abort_group(backend, plan)
        assert everything(backend) == NOTHING | {2: ["in between"]}
        again = '{"0": 0, "1": 0, "2": 1}'
        plan = pin(backend, "job", again)
        complete_job(backend, plan, tasks(backend, plan, {0: ROWS[0]}, "again"))
        assert everything(backend) == {0: ROWS[0], 1: [], 2: ["in between"]}
        append_foreign(backend, 1, "next")
        assert values_in(backend, 1) == ["next"]

    def test_aborted_rows_do_not_conflict_with_an_expected_offset(self, backend: Backend) -> None:
        seen = plan_of(backend, "other", '{"0": 0, "1": 0, "2": 0}')
        for aborted in (True, False):
            plan = pin(backend, f"job-{aborted}", '{"0": null, "1": 0, "2": 0}')
            results = tasks(backend, plan, {0: ROWS[0]})
            hold_named(backend, plan, (1, 2))
            if aborted:
                abort_group(backend, plan)
            else:
                commit_group(backend, plan, results)
        JobWriter(backend, seen, 1).must_append("expects 0")
        assert values_in(backend, 1) == ["expects 0"]

    def test_trim_up_to_undecided_rows_keeps_the_partition(self, backend: Backend) -> None:
        append_foreign(backend, 0, "a", "b")
        plan = pin(backend, "job")
        end = backend.bounds(0).end_offset
        results = tasks(backend, plan, ROWS)
        with self.reopen(backend) as other:
            if not backend.group_in_process:  # otherwise trimming would wait for the transaction
                other.trim(0, end)
                assert other.bounds(0).end_offset == end
        complete_job(backend, plan, results)
        assert values_in(backend, 0)[-10:] == ROWS[0]

    def test_rows_that_differ_from_the_commit_are_reported(self, backend: Backend) -> None:
        """A run with another input committed and crashed before the load was complete."""
        plan = pin(backend, "job")
        mine = {0: ROWS[0][:6]}
        commit_group(backend, plan, tasks(backend, plan, mine))
        append_foreign(backend, 0, "later")
        with self.reopen(backend) as other:
            with pytest.raises((InputChangedError, FencedError)):
                run_whole(other, "job", mine | {1: ROWS[1]}, run="again", wait=0.2)
            assert everything(other) == {0: [*mine[0], "later"], 1: [], 2: []}
        with self.reopen(backend) as other:
            assert run_whole(other, "job", mine, run="as-before").rows == len(mine[0])
            assert everything(other) == {0: [*mine[0], "later"], 1: [], 2: []}
