"""What the text of an error says is in the log of a job."""

from spark_cas.core.micro_batch import KEPT_MS
from spark_cas.core.plan import Plan
from spark_cas.core.refusal import told_rows
from spark_cas.log import clock

_FORGETS = (
    "It began days ago, and a topic's ledger forgets in time, so there may be more: look first whether what is new "
    "is its own."
)


def may_have_forgotten(plan: Plan) -> bool:
    """Whether a ledger that forgets with time may have forgotten rows of a job that is not complete."""
    return clock.now_ms() - plan.pinned_at_ms >= KEPT_MS


def told_held(plan: Plan, rows: int) -> str:
    """What is in the log of a job that is not complete; ``rows`` is what the ledger now counts under this plan.

    That no row is there is never said of a job that the ledger may have forgotten: its user would load all again.
    """
    held = plan.earlier_rows + rows
    if not may_have_forgotten(plan):
        return told_rows(plan.told_as, held)
    return f"{told_rows(plan.told_as, held or None)} {_FORGETS}"
