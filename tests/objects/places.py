"""Logs at places of this machine, for tests."""

from pathlib import Path

from spark_cas.log.objects import ObjectLog
from spark_cas.log.protocol import Backend
from spark_cas.log.spec import LogSpec


def local_log(root: Path) -> ObjectLog:
    """The log in a directory, which need not be there."""
    return ObjectLog(LogSpec.parse(str(root)))


def reopened(backend: Backend) -> ObjectLog:
    """The same log as another process would open it."""
    assert isinstance(backend, ObjectLog)
    return ObjectLog(backend.spec)
