"""The position of a stream, and the offsets of its next batch. This module only computes; it reads no log."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from spark_cas.core.errors import FormatError, LogNotFoundError, OptionError, TruncatedError
from spark_cas.core.expansion import Expansion, reading_limits
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.recorded_fields import INVALID_FIELDS, from_fields
from spark_cas.options.read_range import TopicPartition, kept, listing, share
from spark_cas.spark.reading.selected_logs import LogState, LogStates, bounds_in
from spark_cas.spark.versions import newest_offset, progress_offset


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The position of a stream in one log."""

    log_id: str
    layout_epoch: int
    offsets: dict[int, int]
    """The next offset to read in each partition."""
    begin: dict[int, int] | None = None
    """The start offset of the stream in each partition, in its initial position and the end of its first batch.

    Spark records only the end of a batch. If the first batch failed, Spark requests the initial position again. By
    then, retention or new records may have moved it.
    """
    held: tuple[Expansion, ...] = ()
    """Expansions whose thresholds the stream has not passed.

    Until it has passed them, it does not read the records that were appended after them.
    """


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The position of a stream in each of its logs, by topic."""

    logs: dict[str, LogOffsets]

    @classmethod
    def at(cls, known: LogStates, offsets: Mapping[TopicPartition, int]) -> Self:
        """Return the position at these offsets, in logs of this state."""
        return cls({topic: _in_log(topic, log, offsets) for topic, log in known.items()})

    @classmethod
    def first(cls, known: LogStates, offsets: Mapping[TopicPartition, int]) -> Self:
        """Return the initial position of a stream at these offsets."""
        at = cls.at(known, offsets)
        return cls({topic: replace(log, begin=log.offsets) for topic, log in at.logs.items()})

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Parse the result of `to_json`. Raises FormatError for anything else."""
        try:
            return cls({topic: from_fields(LogOffsets, log) for topic, log in read.items()})
        except INVALID_FIELDS:
            raise FormatError(
                "the offsets in the stream's checkpoint are not those of conditional-log. Is it the checkpoint of "
                "another source, or a newer version's? Start with a new checkpoint, and startingOffsets."
            ) from None

    def to_json(self) -> dict[str, Any]:
        """Return the position as a JSON object for a checkpoint.

        Spark compares the text of positions, so topics and partitions are sorted.
        """
        return {topic: _log_to_json(log) for topic, log in sorted(self.logs.items())}

    @property
    def is_first(self) -> bool:
        return all(log.begin == log.offsets for log in self.logs.values())

    def without_begin(self) -> "StreamOffsets":
        return StreamOffsets({topic: replace(log, begin=None) for topic, log in self.logs.items()})

    def layout_epochs(self) -> dict[str, int]:
        return {topic: log.layout_epoch for topic, log in self.logs.items()}

    def selected(self, selects: Callable[[TopicPartition], bool], *, allow_unsubscribed: bool) -> "StreamOffsets":
        """Return the offsets of the topics and partitions that the options of a query select.

        Raises OptionError if the stream has others, unless the options allow that.
        """
        others = [at for at in self.by_partition() if not selects(at)]
        if others and not allow_unsubscribed:
            raise OptionError(
                f"the checkpoint of the stream has offsets of {listing(others)}, which the options no longer select. "
                f"The query read nothing new. Select them again, or set allowUnsubscribedTopics=true to continue "
                f"without their remaining records."
            )
        logs = {}
        for topic, log in self.logs.items():
            offsets = {each: at for each, at in log.offsets.items() if selects(TopicPartition(topic, each))}
            if offsets:
                logs[topic] = replace(log, offsets=offsets)
        return StreamOffsets(logs)

    def by_partition(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic, partition): offset
            for topic, log in self.logs.items()
            for partition, offset in log.offsets.items()
        }


def available(
    start: StreamOffsets, known: LogStates, *, fail_on_data_loss: bool
) -> dict[TopicPartition, OffsetRange]:
    """Return the unread offsets of each partition, from ``start`` on. New partitions are read from offset 0.

    Raises TruncatedError if a log was recreated, lost partitions, or ends before the position of the stream. If
    ``fail_on_data_loss``, raises TrimmedError for missing records, and LogNotFoundError for missing partitions or
    topics.
    """
    for topic, log in start.logs.items():
        _check_log(topic, log, known.get(topic), fail_on_data_loss=fail_on_data_loss)
    offsets = start.by_partition()
    result = {}
    for at, bounds in bounds_in(known).items():
        base = offsets.get(at, 0)
        check_reached(at, base, bounds)
        new = OffsetRange(base, bounds.end_offset)
        result[at] = kept(at, new, bounds.start_offset, fail_on_data_loss=fail_on_data_loss)
    return result


def released(
    start: StreamOffsets, known: LogStates, ranges: Mapping[TopicPartition, OffsetRange], *, whole: bool
) -> dict[TopicPartition, OffsetRange]:
    """Limit the ranges of the next batch so that the stream reads the records of each key in order (KIP-253).

    With ``whole``, these limits do not split an atomic load either.
    """
    result = dict(ranges)
    for topic, log in known.items():
        positions = {each: ranges[TopicPartition(topic, each)].base_offset for each in log.bounds}
        for partition, limit in reading_limits(_history(start, topic, log), positions, whole=whole).items():
            at = TopicPartition(topic, partition)
            result[at] = OffsetRange(positions[partition], min(limit, ranges[at].end_offset))
    return result


def advanced(
    start: StreamOffsets, observed: LogStates, ranges: Mapping[TopicPartition, OffsetRange], limit: int | None
) -> StreamOffsets:
    """Return the position of a stream after it has read at most ``limit`` offsets of these ranges.

    Topics and partitions without a range keep their offsets, because the stream may read them again later. If no
    offset moves, this returns ``start`` unchanged: Spark takes anything else for new records.
    """
    sizes = {at: len(ranges[at]) for at in sorted(ranges)}
    position = sum(each.base_offset for each in ranges.values())
    used = sizes if limit is None else share(sizes, limit, position)
    known = {topic: replace(log, expansions=_history(start, topic, log)) for topic, log in observed.items()}
    result = StreamOffsets.at(known, {at: each.base_offset + used[at] for at, each in ranges.items()})
    end = _with_absent(start.without_begin(), result)
    if end == start.without_begin():
        return start
    return _begun_at(start, end) if start.is_first else end


def between(start: StreamOffsets, end: StreamOffsets) -> dict[TopicPartition, OffsetRange]:
    """Return the offsets of a batch in each partition that has any.

    If ``end`` has the start offsets of the stream, they replace the offsets of ``start``. After a failed first batch,
    Spark may pass a later initial position as ``start``.
    """
    starts = start.by_partition() | {
        TopicPartition(topic, partition): offset
        for topic, log in end.logs.items()
        for partition, offset in (log.begin or {}).items()
    }
    ends = end.by_partition()
    return {at: OffsetRange(starts.get(at, 0), ends[at]) for at in sorted(ends) if starts.get(at, 0) < ends[at]}


def stream_lag(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the lag of a streaming read, from Spark's progress of its source: per partition, the unread offsets.

    On a topic, the numbers include transaction markers. The result is empty if Spark did not report both offsets.

    Raises:
        FormatError: The source is not a log.
        ValueError, SyntaxError: The offsets are not JSON.
    """
    end, newest = progress_offset(source["endOffset"]), newest_offset(source)
    if end is None or newest is None:
        return {}
    read = StreamOffsets.from_json(end).by_partition()
    ends = StreamOffsets.from_json(newest).by_partition()
    return {at: max(0, offset - read.get(at, 0)) for at, offset in sorted(ends.items())}


def check_reached(at: TopicPartition, offset: int, bounds: Bounds) -> None:
    """Raise TruncatedError if a partition ends before an offset that the stream has reached."""
    if offset > bounds.end_offset:
        raise TruncatedError(
            f"{at} ends at {bounds.end_offset}, and the stream has read it up to {offset}: the log lost records. "
            f"Find out why; then start with a new checkpoint, and startingOffsets."
        )


def check_known(start: StreamOffsets, known: LogStates, topics: Iterable[str]) -> None:
    """Raise LogNotFoundError if the options name a missing topic of which the stream has no offsets."""
    never = sorted(set(topics) - known.keys() - start.logs.keys())
    if never:
        raise LogNotFoundError(
            f"there is no topic {', '.join(never)}, and the stream has not read it yet, so failOnDataLoss=false does "
            f"not apply. Correct the name, or create the topic first."
        )


def check_identity(topic: str, log_id: str, result: str) -> None:
    """Raise TruncatedError if a topic was recreated after the stream read it."""
    if log_id != result:
        raise TruncatedError(
            f"topic {topic} was deleted and recreated since the stream read it: its offsets mean other records "
            f"now. Start with a new checkpoint."
        )


def _check_log(topic: str, before: LogOffsets, now: LogState | None, *, fail_on_data_loss: bool) -> None:
    if now is not None:
        check_identity(topic, before.log_id, now.log_id)
        if now.layout_epoch < before.layout_epoch:
            raise TruncatedError(
                f"topic {topic} has layout epoch {now.layout_epoch}, and the stream has seen epoch "
                f"{before.layout_epoch}: partitions were removed. Start with a new checkpoint."
            )
    gone = sorted(before.offsets.keys() - (now.bounds.keys() if now is not None else ()))
    if gone and fail_on_data_loss:
        raise LogNotFoundError(
            f"topic {topic}: the stream has read partitions {', '.join(map(str, gone))}, which do not exist. The "
            f"query read nothing new. Restore them, or set failOnDataLoss=false to continue without them."
        )


def _with_absent(start: StreamOffsets, result: StreamOffsets) -> StreamOffsets:
    """Return ``result``, with the offsets at the start for topics and partitions that it lacks."""
    current_or_previous = {
        topic: replace(log, offsets=start.logs[topic].offsets | log.offsets) if topic in start.logs else log
        for topic, log in result.logs.items()
    }
    return StreamOffsets(start.logs | current_or_previous)


def _begun_at(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """Return the end of the first batch with the start offsets of the stream, 0 for new partitions."""
    starts = start.by_partition()
    return StreamOffsets(
        {
            topic: replace(log, begin={each: starts.get(TopicPartition(topic, each), 0) for each in log.offsets})
            for topic, log in end.logs.items()
        }
    )


def _history(start: StreamOffsets, topic: str, log: LogState) -> tuple[Expansion, ...]:
    """Return the recorded expansions of a log, and unrecorded ones that the stream itself has detected."""
    before = start.logs[topic].held if topic in start.logs else ()
    result = {each.epoch: each for each in (*log.expansions, *before)}
    return tuple(result[epoch] for epoch in sorted(result))


def _in_log(topic: str, log: LogState, offsets: Mapping[TopicPartition, int]) -> LogOffsets:
    here = {each: offsets[TopicPartition(topic, each)] for each in log.bounds}
    held = tuple(each for each in log.expansions if not each.passed(here))
    return LogOffsets(log.log_id, log.layout_epoch, here, held=held)


def _log_to_json(log: LogOffsets) -> dict[str, Any]:
    fields = {"log_id": log.log_id, "layout_epoch": log.layout_epoch, "offsets": _numbers_to_json(log.offsets)}
    fields |= {} if log.begin is None else {"begin": _numbers_to_json(log.begin)}
    return fields | (
        {"held": [{**asdict(each), "thresholds": list(each.thresholds)} for each in log.held]} if log.held else {}
    )


def _numbers_to_json(numbers: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(numbers.items())}
