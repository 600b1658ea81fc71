"""Processes that crash at any call, before the request reaches the log or before its reply arrives."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cas.core.errors import ConflictError
from spark_cas.log.backend import Backend
from tests.contract.base import ContractBase, NewBackend
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import rows_of, run_job, void
from tests.support.writing import append_foreign, values_in

OPERATIONS = ("layouts", "bounds_of", "plan", "record_plan", "claim", "append", "progress_of", "record_completion")

Crash = tuple[str, int, When]


class CrashContract(ContractBase):
    """After a crash at any call, a rerun leaves each row in the log exactly once and in order."""

    @pytest.mark.parametrize("mode", ["end", "none"])
    @pytest.mark.parametrize("when", list(When), ids=lambda when: when.name.lower())
    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_job_killed_at_any_call_ends_with_exactly_its_input(
        self, new_backend: NewBackend, operation: str, when: When, mode: str
    ) -> None:
        rows = rows_of(7, 0, 2)
        with new_backend() as backend:
            calls = self._calls_of_a_run(backend, operation, mode)
        assert calls > 0, f"{operation} is not part of a run"
        for call in self.spread(calls, self.crashes):
            with new_backend() as backend:
                backend.create(self.partitions)
                append_foreign(backend, 0, "x")
                with pytest.raises(InjectedFaultError):
                    run_job(FaultyLog(backend, Fault(operation, call, when)), "job", rows, expected=mode)
                for partition, first in [(0, ["x"]), (2, [])]:
                    values = values_in(backend, partition)
                    assert values == [*first, *rows[partition]][: len(values)], "a prefix"
                done = run_job(backend, "job", rows, expected=mode, run="run-2")
                assert done.rows == sum(map(len, rows.values()))
                assert values_in(backend, 0) == ["x", *rows[0]]
                assert values_in(backend, 2) == rows[2]
                assert run_job(backend, "job", rows, expected=mode, run="run-3") == done

    def test_any_schedule_of_crashes_ends_with_exactly_the_input(self, new_backend: NewBackend) -> None:
        crashes = st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 6), st.sampled_from(When))
        runs = st.lists(st.tuples(crashes, st.integers(1, 9)), max_size=6)

        @settings(max_examples=self.examples, deadline=None)
        @given(st.integers(0, 20), st.integers(0, 8), runs, st.sampled_from(["end", "none"]))
        def check(rows_0: int, rows_1: int, schedule: Sequence[tuple[Crash, int]], mode: str) -> None:
            rows = rows_of(rows_0, 0) | rows_of(rows_1, 1)
            with new_backend() as backend:
                backend.create(2)
                for at, ((operation, call, when), size) in enumerate(schedule):
                    faulty = FaultyLog(backend, Fault(operation, call, when))
                    with suppress(InjectedFaultError):
                        run_job(faulty, "job", rows, expected=mode, run=f"run-{at}", size=size)
                    for partition, values in rows.items():
                        kept = values_in(backend, partition)
                        assert kept == values[: len(kept)]
                done = run_job(backend, "job", rows, expected=mode, run="last")
                assert done.rows == rows_0 + rows_1
                assert {partition: values_in(backend, partition) for partition in rows} == rows

        check()

    def test_any_schedule_of_crashes_and_foreign_appends(self, new_backend: NewBackend) -> None:
        """A rejected job resumes with the end offset that a user passes, repeatedly."""
        steps = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["before", "after", "foreign"])), max_size=6)

        @settings(max_examples=self.examples, deadline=None)
        @given(steps, st.sampled_from(["end", "none", "given"]))
        def check(steps: Sequence[tuple[int, str]], mode: str) -> None:
            rows = rows_of(10, 0)
            with new_backend() as backend:
                backend.create(1)

                def end() -> str:
                    return f'{{"0": {backend.bounds(0).end_offset}}}'

                def expected() -> str:
                    return end() if mode == "given" else mode

                for at, (call, step) in enumerate(steps):
                    fault = {
                        "before": Fault("append", call, When.BEFORE),
                        "after": Fault("append", call, When.AFTER),
                        "foreign": Fault("append", call, When.BEFORE, lambda: void(append_foreign(backend, 0, "x"))),
                    }[step]
                    with suppress(InjectedFaultError, ConflictError):
                        run_job(FaultyLog(backend, fault), "job", rows, expected=expected(), run=f"run-{at}")
                    ours = [value for value in values_in(backend, 0) if value != "x"]
                    assert ours == rows[0][: len(ours)]
                last = end() if mode == "end" else expected()
                run_job(backend, "job", rows, expected=last, run="last")
                assert [value for value in values_in(backend, 0) if value != "x"] == rows[0]

        check()

    @staticmethod
    def spread(calls: int, crashes: int) -> list[int]:
        """Return the first call, the last call, and calls between them, at most ``crashes`` in total."""
        tried = min(calls, crashes)
        return sorted({1 + at * (calls - 1) // max(1, tried - 1) for at in range(tried)})

    def _calls_of_a_run(self, backend: Backend, operation: str, mode: str) -> int:
        backend.create(self.partitions)
        append_foreign(backend, 0, "x")
        faulty = FaultyLog(backend)
        run_job(faulty, "job", rows_of(7, 0, 2), expected=mode)
        return faulty.calls[operation]
