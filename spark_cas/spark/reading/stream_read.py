"""The streaming reader: the offsets of each micro-batch."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_cas.core.errors import ConditionalLogError, LogNotFoundError, OptionError, TruncatedError, UndecidedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log import timing
from spark_cas.options.read_range import Ranges, TopicPartition, kept
from spark_cas.options.request import StreamRequest
from spark_cas.spark.accelerators.quick_ack import Acknowledged
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.reading.read import RecordsPartition, read_records
from spark_cas.spark.reading.selected_logs import LogStates, SelectedLogs, bounds_in
from spark_cas.spark.reading.stream_offsets import (
    StreamOffsets,
    advanced,
    available,
    between,
    check_identity,
    check_known,
    check_reached,
    released,
)
from spark_cas.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

_LOG = logging.getLogger("spark_cas")

Answer = TypeVar("Answer")


@called_by_spark
class RecordsStreamReader(Acknowledged, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads records as `RecordsReader` does, in micro-batches.

    Guarantee: each committed record after the start is in exactly one batch, despite failures and restarts from the
    checkpoint. A replayed batch has the same records. A batch ends before the first record of an open transaction in
    that partition; other partitions and later batches do not wait for it. No batch has a record of a transaction
    before its commit. With ``Trigger.AvailableNow``, the driver waits for open transactions up to
    ``openTransactionWaitMs`` when it reads the end offsets, and then raises an error.

    With ``isolation=load``, no batch ends within an atomic load. If a transaction is open for longer than
    ``openTransactionWaitMs``, the stream has no new records until it ends.

    Records that were appended after partitions were added are in a later batch than all earlier ones (KIP-253). So
    the records of a key keep their order, if they are placed by key.

    Spark creates one reader in its planner, for the life of the query, and others for tasks. A reader has only the
    request; it opens clients when it needs them.
    """

    def __init__(self, request: StreamRequest, schema: StructType) -> None:
        self.request = request
        self.schema = schema
        self._logs: SelectedLogs | None = None
        self._target: LogStates | None = None
        """The end offsets of Trigger.AvailableNow."""
        self._nowhere: OptionError | None = None
        """Why the options give no start offsets now. `latestOffset` raises it.

        Spark also requests the initial offset if an earlier run planned the first batch. That batch has its own start
        offsets, which do not depend on the present partitions and records.
        """
        self._latest: dict[str, Any] | None = None
        self._last_batch = -math.inf
        self._committed: dict[str, dict[int, int]] = {}
        """The offsets that the reader has committed to the group of option commitGroup, by topic."""
        self._failed_commit = False

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes to `latestOffset`, unless the trigger reads everything at once."""
        trigger = self.request.trigger
        if trigger.max_offsets is not None:
            return ReadMaxRows(trigger.max_offsets)
        return ReadAllAvailable() if trigger.min_offsets is None else ReadMinRows(trigger.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._meet()
        self._target = self._read_now(waiting=True)

    def initialOffset(self) -> dict[str, Any]:
        self._meet()
        known = self._read({})
        try:
            ranges = self.request.range.resolve(bounds_in(known), self._selected().since)
        except OptionError as nowhere:
            self._nowhere = nowhere
            return StreamOffsets({}).to_json()
        return StreamOffsets.first(known, {at: each.base_offset for at, each in ranges.items()}).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = StreamOffsets.from_json(start)
        self._commit_to_group(begin)
        if self._nowhere is not None and not begin.logs:
            raise self._nowhere
        try:
            known, ranges = _believed(partial(self._available, begin), partial(self._reread_available, begin))
        except UndecidedError as open_for_long:
            if self._target is not None:
                raise
            _LOG.warning("nothing new is read for now, with isolation=load: %s", open_for_long.message)
            return start
        everything = advanced(begin, known, ranges, None)
        # For the query's progress and `stream_lag`: the distance from the end of a batch, not from the first one.
        self._latest = everything.without_begin().to_json()
        ranges = released(begin, known, ranges, whole=self.request.whole_loads)
        if isinstance(limit, ReadAllAvailable):
            return advanced(begin, known, ranges, None).to_json()
        now = time.monotonic()
        waited_ms = (now - self._last_batch) * 1000
        if self._target is None and self.request.trigger.waits(sum(map(len, ranges.values())), waited_ms):
            return start
        self._last_batch = now
        return advanced(begin, known, ranges, self.request.trigger.max_offsets).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        until = StreamOffsets.from_json(end)
        ranges = between(StreamOffsets.from_json(start), until)
        result: dict[TopicPartition, OffsetRange] = {}
        for topic in sorted({at.topic for at in ranges}):
            wanted = {at: ranges[at] for at in ranges if at.topic == topic}
            try:
                read = partial(self._still_kept, topic, until.logs[topic].log_id, wanted)
                result |= _believed(read, read)
            except LogNotFoundError:
                if self.request.range.fail_on_data_loss:
                    raise
        tasks = self.request.splitting.split(result)
        return [RecordsPartition(until.logs[task[0][0].topic].log_id, task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RecordsPartition):
            yield from read_records(self.request, partition, self.schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_to_group(StreamOffsets.from_json(end))

    def stop(self) -> None:
        if self._logs is not None:
            self._logs.close()

    def _commit_to_group(self, position: StreamOffsets) -> None:
        """Commit the end of the last finished batch to the group of the options. A failure is a warning.

        Spark reports that end as the start of the next batch, and later with `commit`.
        """
        group = self.request.commit_group
        if group is None or position.is_first:
            return
        for topic, log in position.logs.items():
            if self._committed.get(topic) == log.offsets:
                continue
            try:
                seconds = 4 * timing.current().best_effort
                self._selected().log(topic).commit_to_group(group, log.offsets, seconds)
            except LogNotFoundError:
                continue  # the topic was deleted
            except ConditionalLogError as error:
                if not self._failed_commit:
                    _LOG.warning("option commitGroup: %s The query continues.", error.message)
                self._failed_commit = True
                return
            self._committed[topic] = dict(log.offsets)
        self._failed_commit = False

    def _meet(self) -> None:
        """Connect for the first time in a query, so that a wrong address is an error at once."""
        self._logs = self._logs or SelectedLogs(self.request.selection)

    def _selected(self) -> SelectedLogs:
        self._logs = self._logs or SelectedLogs(self.request.selection.as_reached())
        return self._logs

    def _read(self, known_epochs: Mapping[str, int]) -> LogStates:
        known = self._read_now(waiting=self.request.whole_loads) if self._target is None else self._target
        return self._selected().in_layouts(known, known_epochs)

    def _read_now(self, *, waiting: bool) -> LogStates:
        return self._selected().read(waiting=waiting, without_absent=not self.request.range.fail_on_data_loss)

    def _available(self, start: StreamOffsets) -> tuple[LogStates, dict[TopicPartition, OffsetRange]]:
        """Return the present state of the logs, and the unread offsets of each partition."""
        selection = self.request.selection
        selected = start.selected(selection.selects, allow_unsubscribed=self.request.allow_unsubscribed)
        known = self._read(start.layout_epochs())
        check_known(start, known, selection.topics)
        return known, available(selected, known, fail_on_data_loss=self.request.range.fail_on_data_loss)

    def _reread_available(self, start: StreamOffsets) -> tuple[LogStates, dict[TopicPartition, OffsetRange]]:
        """Read the state a second time, and the end offsets of Trigger.AvailableNow too."""
        if self._target is not None:
            self.prepareForTriggerAvailableNow()
        return self._available(start)

    def _still_kept(self, topic: str, log_id: str, ranges: Ranges) -> Ranges:
        """Return the parts of planned ranges that the log still has. An earlier run may have planned the batch."""
        log = self._selected().log(topic)
        check_identity(topic, log_id, log.layout().log_id)
        now = dict(zip(ranges, log.bounds_of([at.partition for at in ranges], waiting=False), strict=True))
        for at, each in ranges.items():
            check_reached(at, each.end_offset, now[at])
        lossless = self.request.range.fail_on_data_loss
        return {at: kept(at, each, now[at].start_offset, fail_on_data_loss=lossless) for at, each in ranges.items()}


def _believed(read: Callable[[], Answer], reread: Callable[[], Answer]) -> Answer:
    """Confirm by a second read that a log is missing, or shorter than before."""
    with suppress(TruncatedError, LogNotFoundError):
        return read()
    time.sleep(timing.current().metadata_lag)
    return reread()
