"""Checks of a log on the driver before a write: its layout, and the guarantees that its settings allow."""

import warnings
from dataclasses import replace

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import LogNotFoundError, OptionError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Placement
from spark_cas.core.plan import BY_KEY, BY_PARTITION, Layout
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import placement_on, recorded_partitioner
from spark_cas.options.request import WriteRequest
from spark_cas.spark.schema import Mark


class LogSettingsWarning(UserWarning):
    """A setting of the log weakens a guarantee. It is shown with the warnings of Spark's planner."""


def refuse_one_transaction(request: WriteRequest) -> None:
    """Raise OptionError if a stream is to commit each micro-batch in one transaction.

    The task that commits must know that it has all rows, and a stream has no end markers.
    """
    if request.in_one_task:
        raise OptionError(
            "a stream writes with atomic=load on Kafka only within foreachBatch. Nothing was appended. In the "
            "function of foreachBatch, use spark_cas.route and a write with the options job, batchId and atomic=load."
        )


def placement_of(request: WriteRequest, mark: Mark | None) -> Placement | None:
    """Return how the rows of a write were assigned to partitions, or None if the caller assigned them.

    Raises OptionError if the write names another partitioner than `route` used.
    """
    named, routed_by = request.partitioner, mark.partitioner if mark else None
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


def placement_by_key(log: Backend, request: WriteRequest) -> Placement:
    """Return how the tasks of a write assign rows to partitions, if the frame has no column ``partition``.

    Raises OptionError if the option names another partitioner than the log has.
    """
    try:
        recorded = recorded_partitioner(log, request.idempotence)
    except LogNotFoundError:
        recorded = None
    return placement_on(recorded, request.partitioner)


def preflight_limits(
    log: Backend,
    limits: ChunkLimits,
    *,
    begun: bool = False,
    idempotence: str = REQUIRED,
    placement: Placement | None = None,
    compare: str = BY_PARTITION,
) -> tuple[ChunkLimits, str]:
    """Return the limits, including those of the log, and the guarantee that a write can have.

    Warns with `LogSettingsWarning` about settings of the log that weaken a guarantee, unless the stream has
    ``begun``. Raises OptionError if ``compare`` is by key, and sampled keys are in other partitions than the rows of
    this write.
    """
    result = log.preflight(begun=begun, idempotence=idempotence, placement=placement)
    if compare == BY_KEY and result.keys_elsewhere:
        raise OptionError(f"compare=key cannot hold on this log: {result.keys_elsewhere}. Nothing was appended.")
    for note in () if begun else result.notes:
        warnings.warn(note, LogSettingsWarning, stacklevel=2)
    most, setting = result.max_record_bytes, result.max_record_setting
    return replace(limits, max_record_bytes=most, max_record_setting=setting), result.guarantee


def require_layout(
    log: Backend, request: WriteRequest, mark: Mark | None, placement: Placement | None = None
) -> Layout:
    """Return the layout of the log, or create a missing log, and check the frame against the layout.

    It validates the frame and the options before it creates the log, because a partition count cannot be reduced.

    Raises LogNotFoundError if the log is missing and no partition count is given. Raises LayoutChangedError or
    NotRoutedError if the frame was routed for another layout, and OptionError for another partition count.
    """
    try:
        # A frame that was routed for an existing log never creates one.
        made = request.new_partitions is None or (mark is not None and mark.layout_epoch is not None)
        layout = log.layout() if made else log.layout_now()
    except LogNotFoundError:
        if request.new_partitions is None:
            raise LogNotFoundError(
                f"there is no log at {request.spec.url} yet. Give option('partitions', <count>) to create it, or "
                f"fix the path or the name of the topic."
            ) from None
        if mark is not None:
            mark.require_new(request.new_partitions)
        request.expected_offsets.resolve((0,) * request.new_partitions)
        layout = log.create(request.new_partitions, placement.partitioner if placement else DEFAULT_PARTITIONER)
    require_count(log, request.partitions, layout.partitions)
    if mark is not None:
        mark.require(layout)
    return layout


def require_count(log: Backend, values: int | None, partitions: int) -> None:
    """Raise OptionError unless the log has this partition count, or had it before an expansion.

    So after an expansion, the command that created the log can still resume its load.
    """
    if values in (None, partitions) or any(each.before == values for each in log.layouts().expansions):
        return
    raise OptionError(
        f"option partitions is {values}, but the log has {partitions} partitions. Leave it out: it is for a log "
        f"that does not exist yet."
    )
