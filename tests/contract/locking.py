"""Load locks (locks): one of the loads that expect offsets of a partition runs, and crashed loads block no other."""

import os
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.errors import LoadInProgressError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.load_locks import MOST_HELD, LoadLock, LoadLocks
from spark_cas.core.outcome import Fenced
from spark_cas.core.plan import Completion
from spark_cas.log.backend import Backend
from spark_cas.log.load.locking import (
    Applicant,
    abort_job,
    acquire_lock,
    is_process_running,
    is_replaced,
    process_name,
    release_lock,
)
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.base import ContractBase, NewBackend, at_once, eager_switching
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import TEN, Rows, load, rows_of, run_job
from tests.support.writing import JobWriter, append_foreign, table_of, values_in

END = ExpectedOffsets("end")
ME = process_name(os.getpid())
LONG = 30.0


def of_partition(partition: int, partitions: int = 3) -> ExpectedOffsets:
    """Return expected offsets for one partition and none for the others."""
    given = dict.fromkeys(range(partitions)) | {partition: 0}
    return ExpectedOffsets("offsets", tuple(given.items()))


def obtain(log: Backend, job: str, wanted: ExpectedOffsets = END, *, run: str = "run", wait: float = 0) -> LoadLock:
    """Acquire the lock of a load of this process."""
    lock = acquire_lock(log, Applicant(job, run, ME, wait), wanted)
    assert lock is not None
    return lock


def dead_process() -> str:
    """Return the name of a process that ran on this machine and has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = process_name(other.pid)
        assert is_process_running(name)
    assert is_process_running(name) is False
    return name


def locked_load(log: Backend, job: str, rows: Rows, *, wait: float = LONG) -> Completion:
    """Run a load as Spark does: lock, plan, one task, completion."""
    lock = obtain(log, job, run=job, wait=wait)
    try:
        plan = pin_plan(log, job, END)
        return complete_job(log, plan, load(log, plan, rows, task=f"{job}/0"))
    finally:
        release_lock(log, lock)


class LoadLockContract(ContractBase):
    """Acquisition, waiting and release of locks."""

    def test_a_log_has_none_at_first_and_then_those_that_were_put(self, backend: Backend) -> None:
        assert backend.load_locks() == LoadLocks()
        lock = LoadLock("job", "run", ((0, 2), (5, 9)), ME, 5, ("before",))
        one = LoadLocks().with_lock(lock)
        assert backend.put_load_locks(one)
        with self.reopen(backend) as other:
            assert other.load_locks() == backend.load_locks() == one
            two = one.with_lock(LoadLock("other", "run", ((3, 4),), "", 6))
            assert other.put_load_locks(two)
            assert backend.load_locks() == two
            assert not backend.put_load_locks(one.without(lock)), "the change is based on old locks"
            assert backend.load_locks() == two

    def test_many_changes_leave_the_last(self, backend: Backend) -> None:
        for number in range(1, 40):
            lock = LoadLock("job", f"{number}", ((0, 1),), "", number)
            assert backend.put_load_locks(backend.load_locks().with_lock(lock))
        assert backend.load_locks() == LoadLocks(39, (lock,))
        assert not backend.put_load_locks(LoadLocks(2, ())), "the name of an old change is no way to another"
        assert backend.load_locks().held == (lock,)

    def test_of_changes_at_once_one_is_made(self, backend: Backend) -> None:
        with self.reopen(backend) as other, eager_switching():
            for _ in range(max(3, self.rounds // 20)):
                before = backend.load_locks()
                changes = [before.with_lock(LoadLock("job", name, ((0, 1),), "", 1)) for name in "abcd"]
                logs = [backend, other] * 2
                put = at_once(*(partial(log.put_load_locks, each) for log, each in zip(logs, changes, strict=True)))
                assert sum(put) <= 1
                after = other.load_locks()
                if any(put):
                    assert after == changes[put.index(True)]
                else:
                    assert after in [before, *changes]

    def test_each_has_its_turn(self, backend: Backend) -> None:
        inside: list[str] = []
        seen: list[int] = []

        def take_turn(log: Backend, job: str) -> None:
            lock = obtain(log, job, wait=LONG)
            inside.append(job)
            time.sleep(0.01)
            seen.append(len(inside))
            inside.remove(job)
            release_lock(log, lock)

        with self.reopen(backend) as other:
            at_once(*(partial(take_turn, log, f"job-{at}") for at, log in enumerate([backend, other] * 2)))
        assert seen == [1] * 4
        assert backend.load_locks().held == ()

    def test_two_honest_loads_at_once_both_end_well(self, backend: Backend) -> None:
        rows = {name: {each: [f"{name}{each}.{row}" for row in range(10)] for each in range(3)} for name in "ab"}
        with self.reopen(backend) as other:
            done = at_once(partial(locked_load, backend, "a", rows["a"]), partial(locked_load, other, "b", rows["b"]))
            assert [each.rows for each in done] == [30, 30]
        for partition in range(3):
            ours, others = rows["a"][partition], rows["b"][partition]
            assert values_in(backend, partition) in (ours + others, others + ours)
        assert values_in(backend, 0)[0][0] == values_in(backend, 2)[0][0], "the loads ran one after the other"

    def test_load_without_a_wait_reports_the_running_load(self, backend: Backend) -> None:
        obtain(backend, "first")
        with self.reopen(backend) as other:
            with pytest.raises(LoadInProgressError, match=r"job 'first' .* partitions 0 to 2 since 20"):
                obtain(other, "second")
            assert (other.load_locks().of("second"), other.plan("second")) == (None, None)

    def test_loads_of_other_partitions_do_not_wait(self, backend: Backend) -> None:
        obtain(backend, "first", of_partition(0))
        second = obtain(backend, "second", of_partition(2))
        assert second.ranges == ((2, 3),)
        with pytest.raises(LoadInProgressError, match=r"job 'second' .* partition 2 "):
            obtain(backend, "third", of_partition(2))
        assert acquire_lock(backend, Applicant("fourth", "run"), ExpectedOffsets("none")) is None

    def test_unchecked_atomic_load_needs_a_lock_if_its_chunks_block_others(self, backend: Backend) -> None:
        obtain(backend, "first", of_partition(0))
        wanted = ExpectedOffsets("none")
        if backend.group_in_process:
            assert acquire_lock(backend, Applicant("second", "run"), wanted, whole=True) is None
            return
        with pytest.raises(LoadInProgressError, match="job 'first'"):
            acquire_lock(backend, Applicant("second", "run"), wanted, whole=True)
        release_lock(backend, backend.load_locks().of("first"))
        lock = acquire_lock(backend, Applicant("second", "run"), wanted, whole=True)
        assert lock is not None
        assert lock.ranges == ((0, 3),)

    def test_another_running_run_of_the_job_is_detected(self, backend: Backend) -> None:
        first = obtain(backend, "job", run="first")
        assert not is_replaced(backend, first)
        second = obtain(backend, "job", run="second")
        assert (is_replaced(backend, first), is_replaced(backend, second)) == (True, False)
        release_lock(backend, second)
        assert not is_replaced(backend, first)
        assert not is_replaced(backend, None)

    def test_more_than_so_many_wait_for_any(self, new_backend: NewBackend) -> None:
        with new_backend() as log:
            log.create(MOST_HELD + 1)
            load_locks = [obtain(log, f"job-{each}", of_partition(each, MOST_HELD + 1)) for each in range(MOST_HELD)]
            with pytest.raises(
                LoadInProgressError, match=r"8 jobs have load locks of other partitions.*: job-0, job-1,"
            ):
                obtain(log, "one more", of_partition(MOST_HELD, MOST_HELD + 1))
            with pytest.raises(LoadInProgressError, match=r"job 'job-3' .* partition 3 "):
                obtain(log, "one more", of_partition(3, MOST_HELD + 1))
            release_lock(log, load_locks[3])
            obtain(log, "one more", of_partition(MOST_HELD, MOST_HELD + 1))

    def test_among_as_many_as_may_be_one_that_has_ended_makes_room(self, new_backend: NewBackend) -> None:
        with new_backend() as log:
            log.create(MOST_HELD + 1)
            for each in range(1, MOST_HELD):
                obtain(log, f"job-{each}", of_partition(each, MOST_HELD + 1))
            acquire_lock(log, Applicant("dead", "run", dead_process()), of_partition(0, MOST_HELD + 1))
            with self.reopen(log) as other:
                left = JobWriter(other, pin_plan(other, "dead", of_partition(0, MOST_HELD + 1)))
                left.must_append("a")
                assert obtain(log, "one more", of_partition(MOST_HELD, MOST_HELD + 1)).after == ("dead",)
                outcome = left.append(table_of(["b"]))
            if self.claims_fence:
                assert isinstance(outcome, Fenced)

    def test_another_run_of_the_job_gets_it_and_the_earlier_one_gives_nothing_back(self, backend: Backend) -> None:
        first = obtain(backend, "job", run="one")
        again = obtain(backend, "job", run="two")
        assert backend.load_locks().held == (again,)
        release_lock(backend, first)
        assert backend.load_locks().held == (again,)
        release_lock(backend, again)
        assert backend.load_locks().held == ()

    def test_complete_load_does_not_block_others(self, backend: Backend) -> None:
        obtain(backend, "first")
        run_job(backend, "first", TEN)
        assert obtain(backend, "second").after == ("first",)

    def test_load_of_an_ended_process_does_not_block_others(self, backend: Backend) -> None:
        acquire_lock(backend, Applicant("dead", "run", dead_process()), END)
        assert obtain(backend, "second").after == ("dead",)
        assert [each.job for each in backend.load_locks().held] == ["second"]

    def test_stalled_load_does_not_block_others_after_the_timeout(self, backend: Backend) -> None:
        """The process is unknown here, as for one on another machine."""
        acquire_lock(backend, Applicant("first", "run"), END)
        began = time.monotonic()
        patient = Applicant("second", "run", ME, LONG, silent_seconds=0.4)
        assert acquire_lock(backend, patient, END) is not None
        assert time.monotonic() - began >= patient.gone_after(backend)

    def test_whose_process_runs_is_waited_for_however_long_it_appends_nothing(self, backend: Backend) -> None:
        obtain(backend, "first")
        with pytest.raises(LoadInProgressError, match="job 'first'"):
            acquire_lock(backend, Applicant("second", "run", ME, 0.5, silent_seconds=0.1), END)

    def test_appending_load_blocks_others(self, backend: Backend) -> None:
        acquire_lock(backend, Applicant("first", "run"), END)
        stop = threading.Event()

        def append_now_and_then() -> None:
            with self.reopen(backend) as log:
                while not stop.wait(0.2):
                    append_foreign(log, 1, "more")

        appending = threading.Thread(target=append_now_and_then)
        appending.start()
        try:
            with pytest.raises(LoadInProgressError, match="job 'first'"):
                acquire_lock(backend, Applicant("second", "run", ME, 4.0, silent_seconds=2.0), END)
        finally:
            stop.set()
            appending.join()

    def test_writers_of_an_expired_load_append_no_more(self, backend: Backend) -> None:
        """If the backend fences claims, the append of the slow load is rejected.

        Otherwise the plan or append of the next load detects its rows.
        """
        with self.reopen(backend) as other:
            acquire_lock(other, Applicant("slow", "run"), END)
            slow = JobWriter(other, pin_plan(other, "slow", END))
            slow.must_append("before")
            assert acquire_lock(backend, Applicant("next", "run", "", LONG, silent_seconds=0.1), END) is not None
            outcome = slow.append(table_of(["after"]))
            if self.claims_fence:
                assert isinstance(outcome, Fenced)
            plan = pin_plan(backend, "next", END)
            assert plan.end_offsets[0] >= 1
            complete_job(backend, plan, load(backend, plan, rows_of(4, 0, 1, 2), task="next/0"))

    def test_expired_job_stays_fenced_after_a_crash_of_its_successor(self, backend: Backend) -> None:
        acquire_lock(backend, Applicant("first", "run", dead_process()), END)
        faulty = FaultyLog(backend, Fault("put_load_locks", 1, When.AFTER))
        with pytest.raises(InjectedFaultError):
            acquire_lock(faulty, Applicant("second", "run", dead_process()), END)
        assert obtain(backend, "third").after == ("first", "second")

    @pytest.mark.parametrize("when", list(When))
    @pytest.mark.parametrize("step", ["load_locks", "put_load_locks"])
    @pytest.mark.parametrize("call", [1, 2])
    def test_killed_at_any_step_it_is_run_again(self, backend: Backend, step: str, when: When, call: int) -> None:
        with pytest.raises(InjectedFaultError):
            locked_load(FaultyLog(backend, Fault(step, call, when)), "job", TEN)
        assert locked_load(backend, "job", TEN).rows == len(TEN[0])
        assert values_in(backend, 0) == TEN[0]
        assert backend.load_locks().held == ()

    def test_unused_lock_is_released_by_hand(self, backend: Backend) -> None:
        held = obtain(backend, "job")
        plan = pin_plan(backend, "job", END)
        assert isinstance(backend.claim(0, plan), Claim)
        assert abort_job(backend, "job", dry_run=True) == held
        assert backend.load_locks().held == (held,)
        assert abort_job(backend, "job") == held
        assert backend.load_locks().held == ()
        obtain(backend, "other")
        with pytest.raises(OptionError, match="job 'job' has no load lock"):
            abort_job(backend, "job")
