"""Error text for the rows of a job in the log."""

from spark_cas.core.plan import Plan
from spark_cas.core.refusal import rows_in_log_text
from spark_cas.log import clock
from spark_cas.log.backend import Backend

_FORGETS = (
    "It began days ago, and the ledger of a topic expires, so there may be more. Check first whether the new records "
    "are those of the job."
)


def rows_in_ledger_text(log: Backend, plan: Plan, rows: int) -> str:
    """Return a sentence that reports the rows in the log of an incomplete job.

    If entries may have expired, the sentence never reports that there is no row, because the user would load all rows
    again.

    Args:
        log: The log.
        plan: The plan of the job.
        rows: The number of rows in the ledger under this plan.
    """
    rows += plan.earlier_rows
    if clock.now_ms() - plan.pinned_at_ms < log.unexpired_ms():
        return rows_in_log_text(plan.display_name, rows)
    return f"{rows_in_log_text(plan.display_name, rows or None)} {_FORGETS}"
