"""Atomic loads on backends such as Kafka, where one process must append and commit: a single task does both."""

from collections.abc import Callable

from spark_cas.core.errors import FencedError, InputChangedError, TransactionEndedError
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log import timing
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import ConfirmingRead, Wait
from spark_cas.log.load.atomic_load import decide_group, is_committed

_DOING = "loading as a whole"


def in_one_transaction(
    log: Backend,
    plan: Plan,
    append: Callable[[], tuple[PartitionResult, ...]],
    *,
    fenced_retry_wait_seconds: float,
) -> tuple[PartitionResult, ...]:
    """Append all rows of a plan with a commit group, and make them visible atomically.

    If the transaction ends with a transient failure, the function appends all rows again. It retries until the log's
    retry deadline, counted from the first such failure.

    ``append`` appends the rows, as `append_rows` or `load_batch` does. The function may call it several times, and
    waits ``fenced_retry_wait_seconds`` for another attempt to commit. Raises the errors of ``append`` and
    `decide_group`.
    """
    joined, wait = False, None
    pause = timing.current().group_retry_pause
    while True:
        try:
            results = append()
            decide_group(log, plan, results)
        except TransactionEndedError as error:
            # Start the deadline at the first failure, because a load may take longer than the deadline.
            wait = wait or Wait(log.patience_seconds, _DOING, pause, 10 * pause)
            if not wait.again(error.message):
                raise
        except (FencedError, InputChangedError):
            # Another attempt took over. Do not fence it in turn. After its commit, compare its rows with these, and
            # return its offsets.
            if joined or not _is_committed_soon(log, plan, fenced_retry_wait_seconds):
                raise
            joined = True
        else:
            return results


def _is_committed_soon(log: Backend, plan: Plan, seconds: float) -> bool:
    pause = timing.current().group_retry_pause
    wait = ConfirmingRead(seconds, f"waiting for another run of job {plan.display_name}", pause)
    while not is_committed(log, plan):
        if not wait.again("it is not committed"):
            return False
    return True
