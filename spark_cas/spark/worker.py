"""Functions for Spark's Python workers: the context of a task, and the log that the driver planned with."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from spark_cas.core.errors import LogNotFoundError, LogNotSharedError
from spark_cas.log import timing
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import ConfirmingRead
from spark_cas.log.open import AnySpec, open_spec
from spark_cas.spark.accelerators.freezing import freeze_loaded_modules
from spark_cas.spark.plain_errors import in_worker

_NOT_SHARED = (
    "the driver planned with a log that this worker does not find at the same address. All workers need access to "
    "the directory of a log: use a shared mount or an object store. If the log was deleted or recreated meanwhile, "
    "read the new log, and use another job name to write to it."
)


@contextmanager
def open_here(spec: AnySpec) -> Iterator[Backend]:
    """Open the log of a spec for a ``with`` block. A Spark worker keeps its clients connected for later tasks."""
    with open_spec(spec, pooled=in_worker()) as log:
        yield log
    freeze_loaded_modules()


@contextmanager
def planned_log(spec: AnySpec, log_id: str, *, appending: bool = False) -> Iterator[Backend]:
    """Open the log of a spec for a ``with`` block, and check that its id is ``log_id``.

    Raises LogNotSharedError if the log is missing or has another id, after retries for `Timing.planned_log`. Raises
    the same error if the code in the block finds the log missing.

    With ``appending``, the check may use metadata of the worker's last task, because an append checks the id too.
    """
    with open_here(spec.as_reached()) as log:
        wait = ConfirmingRead(timing.current().planned_log, "looking for the log that the driver planned with")
        while not _is(log, log_id, appending=appending):
            # This worker's broker may have older metadata than the driver's.
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
    """Return the number of this task in its stage. Each attempt of the task has the same number."""
    return _context().partitionId()


def local_property(name: str) -> str | None:
    """Return a local property of the thread that started the job of this task, or None if it is not set."""
    return _context().getLocalProperty(name)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a write runs within a task of Spark")
    return context
