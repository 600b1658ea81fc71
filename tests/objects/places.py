"""Object logs on this machine, for tests."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from uuid import uuid4

from spark_cas.log.backend import Backend
from spark_cas.log.objects import ObjectLog
from spark_cas.log.objects.store import open_store
from spark_cas.log.spec import LogSpec
from tests.objects.flaky_store import FlakyStore


def local_log(root: Path) -> ObjectLog:
    """Return the log in a directory, which does not have to exist."""
    return ObjectLog(LogSpec.parse(str(root)))


def reopened(backend: Backend) -> ObjectLog:
    """Return the same log as another process would open it."""
    assert isinstance(backend, ObjectLog)
    return ObjectLog(backend.spec)


def memory_spec() -> LogSpec:
    """Return a new address in memory."""
    return LogSpec.parse(f"memory:///{uuid4().hex}/flights")


def at_call(number: int, action: Callable[[], object]) -> Callable[[str], None]:
    """Return a function for `FlakyStore.before` that does something once, before the call of this number."""
    calls = count(1)

    def before(_path: str) -> None:
        if next(calls) == number:
            action()

    return before


def flaky_log(partitions: int = 1, *, patience: str = "120s") -> tuple[ObjectLog, FlakyStore]:
    """Return a new log and its store, to which tests add faults."""
    spec = memory_spec().with_options({"retry_timeout": patience})
    store = FlakyStore(open_store(spec))
    log = ObjectLog(spec, store)
    log.create(partitions)
    return log, store
