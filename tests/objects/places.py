"""Logs at places of this machine, for tests."""

from pathlib import Path
from uuid import uuid4

from spark_cas.log.backend import Backend
from spark_cas.log.objects import ObjectLog
from spark_cas.log.objects.store import open_store
from spark_cas.log.spec import LogSpec
from tests.objects.flaky_store import FlakyStore


def local_log(root: Path) -> ObjectLog:
    """The log in a directory, which need not be there."""
    return ObjectLog(LogSpec.parse(str(root)))


def reopened(backend: Backend) -> ObjectLog:
    """The same log as another process would open it."""
    assert isinstance(backend, ObjectLog)
    return ObjectLog(backend.spec)


def memory_spec() -> LogSpec:
    """A place in memory that nobody has used yet."""
    return LogSpec.parse(f"memory:///{uuid4().hex}/flights")


def flaky_log(partitions: int = 1, *, patience: str = "120s") -> tuple[ObjectLog, FlakyStore]:
    """A new log over a store with faults to be given."""
    spec = memory_spec().with_options({"retry_timeout": patience})
    store = FlakyStore(open_store(spec))
    log = ObjectLog(spec, store)
    log.create(partitions)
    return log, store
