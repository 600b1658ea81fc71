"""What is a whole where a group is open in the process that appends to it, as on Kafka: one task does all of it."""

from collections.abc import Callable

from spark_cas.core.errors import FencedError, InputChangedError, TransactionEndedError
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log.backend import Backend
from spark_cas.log.load.whole_load import decide_group, is_committed
from spark_cas.log.patience import SecondLook, Wait

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0
_DOING = "loading as a whole"


def in_one_transaction(
    log: Backend,
    plan: Plan,
    append: Callable[[], tuple[PartitionResult, ...]],
    *,
    fenced_wait_seconds: float,
) -> tuple[PartitionResult, ...]:
    """Append all rows of a plan with a group, and make them visible, in one step.

    ``append`` appends them, as `load_rows` or `load_batch` does, and has them still when it is called again: what
    fails on the way and passes ends the transaction, and all of it is done anew, for as long as the log's patience
    from then on. Raises whatever it and `decide_group` raise.
    """
    joined, wait = False, None
    while True:
        try:
            results = append()
            decide_group(log, plan, results)
        except TransactionEndedError as error:
            # A load may take longer than anything is waited for, and is tried again all the same.
            wait = wait or Wait(log.patience_seconds, _DOING, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            if not wait.again(error.message):
                raise
        except (FencedError, InputChangedError):
            # Another attempt took over: to take over from it in turn would help neither. Once it has committed, its
            # rows are compared with these, and where they lie is told.
            if joined or not _is_committed_soon(log, plan, fenced_wait_seconds):
                raise
            joined = True
        else:
            return results


def _is_committed_soon(log: Backend, plan: Plan, seconds: float) -> bool:
    wait = SecondLook(seconds, f"waiting for another run of job {plan.told_as}", _FIRST_PAUSE_SECONDS)
    while not is_committed(log, plan):
        if not wait.again("it is not committed"):
            return False
    return True
