"""Expand a log (KIP-253): add partitions in such a way that readers can preserve the order of each key.

The order of the steps makes an expansion safe. First, check that the log accepts it, because an expansion cannot be
undone. Then record the intent: the log locks no claim after that, so even task retries cannot append. Then end each
partition: earlier claims become void, and the end offset becomes the threshold. Then add the partitions. Last, record
the layout with the thresholds. If any step is interrupted, the same call resumes there.
"""

from collections.abc import Iterable
from dataclasses import replace

from spark_cas.core.errors import LayoutChangedError, OptionError
from spark_cas.core.expansion import Expansion, Layouts
from spark_cas.core.plan import MOST_PARTITIONS, Layout
from spark_cas.log.backend import Backend


def expand_log(log: Backend, partitions: int, *, dry_run: bool = False) -> Layout:
    """Expand a log to more partitions, and return its new layout. Earlier plans become void.

    If an expansion to the same count was begun, by any caller, the call finishes it. With ``dry_run``, it changes
    nothing after the checks, and returns the present layout with the new count.

    Raises:
        OptionError: The log already has that many partitions, or the count is above the limit. Nothing was begun.
        LayoutChangedError: An expansion to another count was begun.
        StorageError: The store failed, or rejects the expansion. Repeat the call to resume an expansion that was
            begun.
        LogNotFoundError, FormatError, ChunkDamagedError: The log cannot be read.
    """
    layout = log.layout()
    intent = log.layouts().pending
    if intent is None:
        if partitions <= layout.partitions:
            raise OptionError(
                f"the log has {layout.partitions} partitions, and cannot be expanded to {partitions}. The partition "
                f"count can only grow. Name a larger count."
            )
        if partitions > MOST_PARTITIONS:
            raise OptionError(
                f"the log was to be expanded to {partitions} partitions, and a log has {MOST_PARTITIONS} at most. "
                f"Nothing was changed. Name a smaller count."
            )
        log.check_partitions_may_be_added(partitions)
        if dry_run:
            return replace(layout, partitions=partitions)
        intent = log.begin_expansion(layout, partitions)
    finished = any(each.epoch == intent.epoch for each in log.layouts().expansions)
    if intent.partitions != partitions:
        if finished:
            raise LayoutChangedError(
                f"another process has just expanded the log to {intent.partitions} partitions. To add "
                f"more, expand it again."
            )
        raise LayoutChangedError(
            f"another process is expanding the log to {intent.partitions} partitions, or was interrupted. Expand it "
            f"to {intent.partitions} first, then further."
        )
    if dry_run:
        return replace(layout, partitions=partitions)
    if not finished:
        # A finished expansion may already have writers of the new layout.
        thresholds = tuple(log.end_partition(each, intent) for each in range(intent.before))
        log.add_partitions(intent)
        log.finish_expansion(Expansion(intent.epoch, intent.partitions, thresholds))
    return log.layout()


def layout_with(log: Backend, partitions: Iterable[int]) -> Layout:
    """Return the layout of a log, and check that it has these partitions. Raises ValueError if one does not exist."""
    named, layout = [*partitions], log.layout()
    if max(named, default=0) >= layout.partitions:
        layout = log.layouts().layout
    for each in named:
        layout.require(each)
    return layout


def layout_since(log: Backend, epoch: int) -> Layout:
    """Return the layout of a log, with at least this epoch unless the log was recreated."""
    layout = log.layout()
    return layout if layout.epoch >= epoch else log.layouts().layout


def settled_layouts(log: Backend) -> Layouts:
    """Return the layouts of a log for a new plan.

    Raises:
        LayoutChangedError: An expansion is pending, so that a plan of now would be void after it.
    """
    layouts = log.layouts()
    intent = layouts.pending
    if intent is not None:
        raise LayoutChangedError(
            f"the log is being expanded from {intent.before} to {intent.partitions} partitions. Nothing was "
            f"appended. Run again when that is done; if it was interrupted, 'spark-cas expand' to "
            f"{intent.partitions} finishes it.",
            resumable=True,
        )
    return layouts
