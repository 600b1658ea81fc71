"""What a backend's test file gives, and what the parts of the contract share."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import ClassVar, TypeVar

import pytest

from spark_cas.log.backend import Backend

Result = TypeVar("Result")
NewBackend = Callable[[], Backend]


class ContractBase:
    """Give the fixture ``new_backend`` and the method ``reopen``; lower the numbers for a slow store."""

    partitions: ClassVar[int] = 3
    rounds: ClassVar[int] = 200
    """How often each race is run."""
    examples: ClassVar[int] = 40
    """How many random inputs each property is tried with."""
    crashes: ClassVar[int] = 1_000
    """At how many calls of each kind, at least two and spread over a run, a job is killed."""
    claims_fence: ClassVar[bool] = False
    """Whether a claim fences earlier ones, so that two attempts of several partitions can fence each other."""
    trims_whole_chunks: ClassVar[bool] = True
    """Whether trimming keeps the rest of a chunk that it would cut, and the newest chunk in any case."""

    @pytest.fixture
    def new_backend(self) -> NewBackend:
        """Opens a place where no log is yet: a new place at each call."""
        raise NotImplementedError

    def reopen(self, backend: Backend) -> Backend:
        """Open the log of a backend a second time, as another process would."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self, new_backend: NewBackend) -> Iterator[Backend]:
        """A new log without records."""
        with new_backend() as backend:
            backend.create(self.partitions)
            yield backend


def at_once(*calls: Callable[[], Result]) -> list[Result]:
    """Run calls in threads that start together, and return their results in the order of the calls."""
    start = Barrier(len(calls))

    def run(call: Callable[[], Result]) -> Result:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(run, call) for call in calls]]


@contextmanager
def eager_switching() -> Iterator[None]:
    """Let threads take turns as often as possible, so that races are found."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
