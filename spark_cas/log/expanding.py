"""The expansion of a log (KIP-253): partitions are added so that readers can keep the order of each key.

The order of the steps is the safety. Nothing is begun that the log would refuse: it could not be taken back. First
the intent is recorded: no claim is granted from then on, so that not even a task's retry appends any more. Then each
partition is ended: claims from before the intent are void, and where the partition ends then is its threshold. Only
then there are more partitions, and last the layout is recorded, with the thresholds. Whoever was interrupted
anywhere, the same call goes on from there.
"""

from collections.abc import Callable, Iterable

from spark_cas.core.errors import LayoutChangedError, OptionError
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.plan import MOST_PARTITIONS, Layout
from spark_cas.log.backend import Backend


def expand_log(log: Backend, partitions: int) -> Layout:
    """Give a log so many partitions, and return its layout then. What was planned before has to be planned again.

    An expansion to the same count that was begun, by whomever, is finished.

    Raises OptionError unless the log has fewer partitions and may have so many; LayoutChangedError when an expansion
    to another count was begun; LogNotFoundError, FormatError, ChunkDamagedError; StorageError: then the same call is
    to be made again. Nothing was begun where the log refuses to have more.
    """
    layout = log.layout()
    intent = log.layouts().pending
    if intent is None:
        if partitions <= layout.partitions:
            raise OptionError(
                f"the log has {layout.partitions} partitions and was to be expanded to {partitions}: partitions can "
                f"only be added. Name a larger count; if this one is what you want, there is nothing to do."
            )
        if partitions > MOST_PARTITIONS:
            raise OptionError(
                f"the log was to be expanded to {partitions} partitions, and a log has {MOST_PARTITIONS} at most. "
                f"Nothing was changed. Name a smaller count."
            )
        log.check_partitions_may_be_added(partitions)
        intent = log.begin_expansion(layout, partitions)
    finished = _finished(log, intent)
    if intent.partitions != partitions:
        if finished:
            raise LayoutChangedError(
                f"somebody else has just expanded the log to {intent.partitions} partitions. If that is not enough, "
                f"expand it again."
            )
        raise LayoutChangedError(
            f"somebody else is expanding the log to {intent.partitions} partitions, or began to and was interrupted. "
            f"Finish that by expanding to {intent.partitions}, then expand further."
        )
    if not finished:
        # Only if it is not: writers of the new layout may be at work.
        thresholds = tuple(log.end_partition(each, intent) for each in range(intent.before))
        log.add_partitions(intent)
        log.finish_expansion(Expansion(intent.epoch, intent.partitions, thresholds))
    return log.layout()


def layout_with(log: Backend, partitions: Iterable[int]) -> Layout:
    """The layout of a log, for who names partitions of it. Raises ValueError for one that the log does not have."""
    named = [*partitions]
    layout = _layout_known(log, lambda found: max(named, default=0) < found.partitions)
    for each in named:
        layout.require(each)
    return layout


def layout_since(log: Backend, epoch: int) -> Layout:
    """The layout of a log, for who knows of one with this epoch: that or later, unless it was made anew."""
    return _layout_known(log, lambda found: found.epoch >= epoch)


def settled_layouts(log: Backend) -> Layouts:
    """How a log came to its partitions, for who plans now.

    LayoutChangedError while an expansion is pending: what is planned then would be void when it is finished.
    """
    layouts = log.layouts()
    intent = layouts.pending
    if intent is not None:
        raise LayoutChangedError(
            f"the log is being expanded from {intent.before} to {intent.partitions} partitions. Nothing was "
            f"appended. Run again when that is done; if it was interrupted, 'spark-cas expand' to "
            f"{intent.partitions} finishes it."
        )
    return layouts


def _layout_known(log: Backend, knows: Callable[[Layout], bool]) -> Layout:
    """A broker may lag behind, and say what the layout was; what is on record of expansions has one place."""
    layout = log.layout()
    return layout if knows(layout) else log.layouts().layout


def _finished(log: Backend, intent: Intent) -> bool:
    return any(each.epoch == intent.epoch for each in log.layouts().expansions)
