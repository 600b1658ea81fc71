"""Stop the other tasks of a write after a definite error of one (`spark_cas.log.load.cancelling`)."""

from contextlib import suppress

from spark_cas.core.errors import ConditionalLogError, LogNotSharedError
from spark_cas.log import timing
from spark_cas.log.load.cancelling import Rejection, cancel_run
from spark_cas.log.open import AnySpec, with_short_timeout
from spark_cas.spark.worker import planned_log


def for_last_requests(spec: AnySpec) -> AnySpec:
    """Return the log with a short retry timeout, for the last requests of a failed write.

    The error of the write is raised after them.
    """
    return with_short_timeout(spec, int(1000 * timing.current().longest_request))


def stop_others(spec: AnySpec, log_id: str, run: str, rejection: Rejection) -> None:
    """Cancel the run of a task. If this fails, the other tasks run to their end."""
    # A worker that sees another log cannot reach the other tasks through it.
    if rejection.kind != LogNotSharedError.kind:
        with suppress(ConditionalLogError), planned_log(for_last_requests(spec), log_id) as log:
            cancel_run(log, run, rejection)
