"""Detect rows of a load that the log removed before the load ended, such as by retention of old timestamps."""

import logging
from collections.abc import Sequence

from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.plan import Completion, Progress
from spark_cas.log.backend import Backend

_LOG = logging.getLogger("spark_cas")


def removed_rows(log: Backend, loaded: Sequence[Progress]) -> tuple[int, ...]:
    """Return the maximum number of rows that each of these partitions has removed.

    The number is computed from the oldest retained offset, and offsets also count transaction markers. ``loaded``
    are the ledger entries of the job. Raises the errors of `Backend.bounds_of`.
    """
    if not log.removes_by_itself:
        return (0,) * len(loaded)
    bounds = log.bounds_of([each.partition for each in loaded], waiting=False)
    return tuple(
        min(each.rows, max(0, min(kept.start_offset, each.end_offset) - each.base_offset))
        for each, kept in zip(loaded, bounds, strict=True)
    )


def log_removed_rows(log: Backend, completion: Completion) -> None:
    """Log a warning if the log has already removed rows of a load that has just completed."""
    loaded = [each.progress for each in completion.partitions if each.progress.rows]
    try:
        removed = sum(removed_rows(log, loaded))
    except ConditionalLogError as error:
        _LOG.warning(
            "the rows of job %s were appended, and not checked afterwards: %s", completion.job, error.message
        )
        return
    if removed:
        _LOG.warning(
            "up to %d of %d rows of job %s were removed from the log while it was loading: retention removes rows "
            "with old timestamps (retention.ms), or the log was trimmed",
            removed,
            completion.rows,
            completion.job,
        )
