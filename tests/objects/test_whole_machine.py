"""Atomic loads in an object store compared with their specification, the log in memory: any steps in any order."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from spark_cas.core.errors import FencedError
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log.backend import Backend
from spark_cas.log.load.atomic_load import abort_group, commit_group
from spark_cas.log.objects import ObjectLog
from tests.contract.whole import everything, pin
from tests.long import full
from tests.objects.places import memory_spec, reopened
from tests.support.memory_log import MemoryLog
from tests.support.writing import JobWriter, append_foreign, table_of

PARTITIONS = 3
AT = st.integers(0, PARTITIONS - 1)
FAR_MS = 2**60


@dataclass
class Load:
    """A run of a load on both logs, with the same writers in both."""

    plans: list[Plan]
    overdue: bool
    writers: dict[int, list[JobWriter]] = field(default_factory=dict)


class WholeLoads(RuleBasedStateMachine):
    """Run the same steps on both logs. Their results and content must be the same after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[Backend] = [MemoryLog(), ObjectLog(memory_spec())]
        for log in self.logs:
            log.create(PARTITIONS)
        self.loads: dict[str, Load] = {}
        self.holder: dict[int, str] = {}
        """By partition, the load whose undecided chunks are at its end."""
        self.rows = 0

    def is_free_for(self, partition: int, job: str = "") -> bool:
        """Return whether an append there does not have to wait. An overdue load is aborted in all partitions."""
        holder = self.holder.get(partition, job)
        if holder == job:
            return True
        if self.loads[holder].overdue:
            self.holder = {each: other for each, other in self.holder.items() if other != holder}
            return True
        return False

    def values(self, count: int) -> list[str]:
        """Return values that no record has yet."""
        self.rows += count
        return [str(self.rows - number) for number in range(count)]

    @precondition(lambda self: len(self.loads) < 4)
    @rule(overdue=st.booleans())
    def begin(self, overdue: bool) -> None:
        self.run_again(f"load-{len(self.loads)}", overdue=overdue)

    @precondition(lambda self: self.loads)
    @rule(which=st.integers(0, 3), overdue=st.booleans())
    def take_over(self, which: int, overdue: bool) -> None:
        """Start another run of the same job, as after a kill. It owns the rows of the previous run."""
        self.run_again(f"load-{which % len(self.loads)}", overdue=overdue)

    def run_again(self, job: str, *, overdue: bool) -> None:
        expected = "none" if job.endswith(("1", "3")) else "end"
        plans = [replace(pin(log, job, expected), decide_by_ms=0 if overdue else FAR_MS) for log in self.logs]
        held = self.loads.get(job)
        if held is not None and not held.overdue and job in self.holder.values():
            overdue = False  # its first chunk there determines its deadline
        self.loads[job] = Load(plans, overdue)

    @precondition(lambda self: self.loads)
    @rule(which=st.integers(0, 3), partition=AT, count=st.integers(1, 3))
    def append(self, which: int, partition: int, count: int) -> None:
        job = f"load-{which % len(self.loads)}"
        load = self.loads[job]
        # Chunks after a decision do not count in either log. The resulting gaps may differ.
        decided = [log.entry("outcome", plan.group) for log, plan in zip(self.logs, load.plans, strict=True)]
        if decided != [None, None] or not self.is_free_for(partition, job):
            return
        if partition not in load.writers:
            load.writers[partition] = [
                JobWriter(log, plan, partition) for log, plan in zip(self.logs, load.plans, strict=True)
            ]
        records = table_of(self.values(count))
        mine, theirs = (writer.append(records) for writer in load.writers[partition])
        assert type(mine) is type(theirs)
        if isinstance(mine, Appended):
            self.holder[partition] = job

    @precondition(lambda self: self.loads)
    @rule(which=st.integers(0, 3))
    def commit(self, which: int) -> None:
        job = f"load-{which % len(self.loads)}"
        committed = [self._commits(log, plan) for log, plan in zip(self.logs, self.loads[job].plans, strict=True)]
        assert committed[0] == committed[1]
        self._forget(job)

    def _commits(self, log: Backend, plan: Plan) -> bool:
        found = [each for each in log.progress_of(range(PARTITIONS), plan.job, plan.group) if each is not None]
        try:
            commit_group(log, plan, [PartitionResult(each, 0, 0) for each in found])
        except FencedError:
            return False
        return True

    @precondition(lambda self: self.loads)
    @rule(which=st.integers(0, 3))
    def abort(self, which: int) -> None:
        job = f"load-{which % len(self.loads)}"
        for log, plan in zip(self.logs, self.loads[job].plans, strict=True):
            abort_group(log, plan)
        self._forget(job)

    @rule(partition=AT, count=st.integers(1, 3))
    def append_behind(self, partition: int, count: int) -> None:
        """Append as another writer, in one chunk."""
        if self.is_free_for(partition):
            values = self.values(count)
            mine, theirs = (append_foreign(log, partition, *values).range for log in self.logs)
            assert mine == theirs

    def _forget(self, job: str) -> None:
        self.holder = {partition: other for partition, other in self.holder.items() if other != job}

    @invariant()
    def both_hold_the_same(self) -> None:
        memory, objects = self.logs
        assert everything(objects) == everything(memory)
        assert everything(reopened(objects)) == everything(memory)
        for log in (objects, reopened(objects)):
            bounds = log.bounds_of(range(PARTITIONS), waiting=True)
            assert bounds == memory.bounds_of(range(PARTITIONS), waiting=True)


@pytest.mark.parametrize("examples", [8, *full(settings().max_examples)])
def test_any_steps_come_to_the_same(examples):
    limits = settings(max_examples=examples, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(WholeLoads, settings=limits)


def test_rejected_append_does_not_end_an_overdue_load():
    steps = WholeLoads()
    steps.begin(overdue=False)
    steps.begin(overdue=True)
    steps.append_behind(partition=0, count=1)
    steps.append(which=1, partition=0, count=1)
    steps.append(which=0, partition=0, count=1)
    steps.both_hold_the_same()
    steps.append_behind(partition=0, count=1)
    steps.both_hold_the_same()
