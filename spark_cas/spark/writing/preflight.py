"""What the driver finds out about a log before anything is written to it: its layout, and what its settings allow."""

import warnings
from dataclasses import replace

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import LogNotFoundError, OptionError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Placement
from spark_cas.core.plan import BY_KEY, BY_PARTITION, Layout
from spark_cas.log.backend import Backend
from spark_cas.options.parse import WriteOptions
from spark_cas.spark.schema import Mark


class LogSettingsWarning(UserWarning):
    """A setting of the log weakens a promise. Spark's driver tells it where its planner's warnings go."""


def placement_of(options: WriteOptions, mark: Mark | None) -> Placement | None:
    """Return how the rows of a write were assigned to partitions; None if their writer did that himself.

    Raises OptionError if the write names another partitioner than `route` used.
    """
    named, routed_by = options.partitioner, mark.partitioner if mark else None
    placed_by = routed_by or named
    if placed_by is None:
        return None
    if named not in (None, placed_by):
        raise OptionError(
            f"option partitioner is {named}, but route placed the rows by {placed_by}. Nothing was appended. Give "
            f"route the options of this write."
        )
    # For an unrecorded log, route uses another one than the default only if an option names it.
    return Placement(placed_by, named=named is not None or placed_by != DEFAULT_PARTITIONER)


def preflight_limits(
    log: Backend,
    limits: ChunkLimits,
    *,
    begun: bool = False,
    idempotence: str = REQUIRED,
    placement: Placement | None = None,
    compare: str = BY_PARTITION,
) -> tuple[ChunkLimits, str]:
    """Return the limits, with those of the log, and the guarantee that a write can have.

    Warns about settings of the log that weaken a promise, but for a stream that has begun. Raises OptionError if a
    write has conditions of keys, and sampled keys are in other partitions than its rows would be.
    """
    found = log.preflight(begun=begun, idempotence=idempotence, placement=placement)
    if compare == BY_KEY and found.keys_elsewhere:
        raise OptionError(f"compare=key cannot hold on this log: {found.keys_elsewhere}. Nothing was appended.")
    for note in () if begun else found.notes:
        warnings.warn(note, LogSettingsWarning, stacklevel=2)
    most, setting = found.max_record_bytes, found.max_record_setting
    return replace(limits, max_record_bytes=most, max_record_setting=setting), found.guarantee


def require_layout(
    log: Backend, options: WriteOptions, mark: Mark | None, placement: Placement | None = None
) -> Layout:
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
        layout = log.create(options.new_partitions, placement.partitioner if placement else DEFAULT_PARTITIONER)
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
