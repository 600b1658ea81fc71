"""Within a worker of Spark: the context of its task, and the log that the driver planned with."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyspark import TaskContext

from spark_cas.core.errors import LogNotFoundError, LogNotSharedError
from spark_cas.log.backend import Backend
from spark_cas.log.open import AnySpec, answered_before, open_again, open_log
from spark_cas.log.patience import SecondLook

_SECOND_LOOK_SECONDS = 5.0
_MANY_MODULES = 100
_COMMITS = "pyspark.sql.worker.python_streaming_sink_runner"

_NOT_SHARED = (
    "the driver planned with a log that this worker does not see under the same address. A log in a local directory "
    "needs one that all workers share: put it on a shared mount or into an object store. If instead it was deleted "
    "or recreated meanwhile, read it anew; a write into the new one needs another job name."
)


@contextmanager
def open_here(spec: AnySpec) -> Iterator[Backend]:
    """The log of a spec, open. A worker of Spark serves one task after the other, and stays connected."""
    with (open_again if _in_worker() else open_log)(spec) as log:
        yield log
    spare_what_is_imported()


def spare_what_is_imported() -> None:
    """In a worker of Spark (4.2), which collects garbage after each task: what is imported by now never is garbage.

    To look at all of that takes 15 to 40 ms of processor time.
    """
    if _in_worker():
        _freeze_once(len(sys.modules) // _MANY_MODULES)


@cache
def _freeze_once(_modules: int) -> None:
    """Once, and again when there are many more modules: pyarrow imports pandas late."""
    gc.collect()
    gc.freeze()


def only_commits() -> bool:
    """Whether Spark (4.2) runs this process for the commits of micro-batches, and asks nothing else of it."""
    return _COMMITS in sys.modules or _run_as() == _COMMITS


def _in_worker() -> bool:
    return _run_as().startswith("pyspark.")


def _run_as() -> str:
    run = sys.modules["__main__"].__spec__
    return "" if run is None else run.name


@contextmanager
def planned_log(spec: AnySpec, log_id: str, *, appending: bool = False) -> Iterator[Backend]:
    """The log of a spec, open; LogNotSharedError when it is not the very log that has ``log_id``.

    Who is ``appending`` finds that out once more, so what the worker's last task was told will do.
    """
    with open_here(answered_before(spec)) as log:
        wait = SecondLook(_SECOND_LOOK_SECONDS, "looking for the log that the driver planned with")
        while not _is(log, log_id, appending=appending):
            # A broker may not know yet what the driver's does.
            if not wait.again("it is not there, or another is"):
                raise LogNotSharedError(_NOT_SHARED)
        try:
            yield log
        except LogNotFoundError:
            raise LogNotSharedError(_NOT_SHARED) from None


def _is(log: Backend, log_id: str, *, appending: bool) -> bool:
    try:
        return log.has_id(log_id) if appending else log.layout_now().log_id == log_id
    except LogNotFoundError:
        return False


def task_number() -> int:
    """The number of this task in its stage: the same for each of its attempts."""
    return _context().partitionId()


def local_property(name: str) -> str | None:
    """A local property of whoever started the job that this task is of; None when it is not set."""
    return _context().getLocalProperty(name)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        msg = "a write runs within a task of Spark"
        raise RuntimeError(msg)
    return context
