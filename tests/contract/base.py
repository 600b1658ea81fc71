"""Fixtures that a backend's test file defines, and shared parts of the contract."""

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
    """Base of the contract. Define ``new_backend`` and ``reopen``; reduce the numbers for a slow store."""

    partitions: ClassVar[int] = 3
    rounds: ClassVar[int] = 200
    """Number of repetitions of each race."""
    examples: ClassVar[int] = 40
    """Number of random inputs per property."""
    crashes: ClassVar[int] = 1_000
    """Number of calls of each kind at which a job is killed, spread over a run; at least two."""
    claims_fence: ClassVar[bool] = False
    """Whether a claim fences earlier claims, so that two attempts over several partitions can fence each other."""
    trims_whole_chunks: ClassVar[bool] = True
    """Whether trimming removes only whole chunks and always keeps the newest chunk."""

    @pytest.fixture
    def new_backend(self) -> NewBackend:
        """Return a function that opens a new, empty location without a log at each call."""
        raise NotImplementedError

    def reopen(self, backend: Backend) -> Backend:
        """Open the log of a backend a second time, as another process does."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self, new_backend: NewBackend) -> Iterator[Backend]:
        """Yield a new log without records."""
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
    """Switch threads as often as possible to expose races."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
