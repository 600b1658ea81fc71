"""A load as a whole where a group is open in the process that appends to it, as on Kafka: one task does all of it."""

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import FencedError, InputChangedError, TransactionEndedError
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log.backend import Backend
from spark_cas.log.load.loading import load_rows
from spark_cas.log.load.spool import Spool
from spark_cas.log.load.whole import decide_group, is_committed
from spark_cas.log.patience import PATIENCE_MS, Wait

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0


def load_in_one_transaction(
    log: Backend,
    plan: Plan,
    rows: Spool,
    *,
    task: str,
    limits: ChunkLimits,
    fenced_wait_seconds: float,
) -> tuple[PartitionResult, ...]:
    """Append all rows of a load and make them visible, in one step, as `load_rows` and `decide_group` do.

    What fails on the way and passes ends the transaction: all of it is done again from the rows that were kept, for
    as long as the patience. Raises whatever those raise.
    """
    joined = False
    wait = Wait(PATIENCE_MS / 1000, "loading as a whole", _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
    while True:
        try:
            results = load_rows(log, plan, rows, task=task, limits=limits, fenced_wait_seconds=fenced_wait_seconds)
            decide_group(log, plan, results)
        except TransactionEndedError as error:
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
    wait = Wait(seconds, f"waiting for another run of job {plan.told_as}", _FIRST_PAUSE_SECONDS)
    while not is_committed(log, plan):
        if not wait.again("it is not committed"):
            return False
    return True
