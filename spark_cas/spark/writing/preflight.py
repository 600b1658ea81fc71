"""What the driver finds out about a log before anything is written to it: its layout, and what its settings allow."""

import warnings
from dataclasses import replace

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import LogNotFoundError, OptionError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.plan import Layout
from spark_cas.log.backend import Backend
from spark_cas.options.parse import WriteOptions
from spark_cas.spark.schema import Mark


class LogSettingsWarning(UserWarning):
    """A setting of the log weakens a promise. Spark's driver tells it where its planner's warnings go."""


def preflight_limits(
    log: Backend, limits: ChunkLimits, *, begun: bool = False, idempotence: str = REQUIRED
) -> tuple[ChunkLimits, str]:
    """The limits, with the log's own, and the guarantee that a write can have.

    What weakens a promise there is told, unless it was when a stream had begun.
    """
    found = log.preflight(begun=begun, idempotence=idempotence)
    for note in () if begun else found.notes:
        warnings.warn(note, LogSettingsWarning, stacklevel=2)
    most, setting = found.max_record_bytes, found.max_record_setting
    return replace(limits, max_record_bytes=most, max_record_setting=setting), found.guarantee


def require_layout(log: Backend, options: WriteOptions, mark: Mark | None) -> Layout:
    """The log's layout, for which the frame was routed; a missing log is created when its partition count is known.

    Not before what can be refused is refused: a log keeps for ever the partition count that it is made with.
    """
    try:
        # A frame that was routed for a log that is there makes none.
        made = options.new_partitions is None or (mark is not None and mark.layout_epoch is not None)
        layout = log.layout() if made else log.layout_now()
    except LogNotFoundError:
        if options.new_partitions is None:
            raise LogNotFoundError(
                f"there is no log at {options.spec.url} yet. Give option('partitions', <count>) to create it, or "
                f"fix the path or the name of the topic."
            ) from None
        if mark is not None:
            mark.require_new(options.new_partitions)
        options.expected_offsets.resolve((0,) * options.new_partitions)
        layout = log.create(options.new_partitions)
    require_count(log, options.partitions, layout.partitions)
    if mark is not None:
        mark.require(layout)
    return layout


def require_count(log: Backend, given: int | None, partitions: int) -> None:
    """OptionError unless a log has as many partitions as the option says, or had before more were added.

    Else the load that made the log could not go on behind an expansion by the same command.
    """
    if given in (None, partitions) or any(each.before == given for each in log.layouts().expansions):
        return
    raise OptionError(
        f"option partitions says {given}, but the log has {partitions} partitions. Leave it out: it is for a log "
        f"that does not exist yet."
    )
