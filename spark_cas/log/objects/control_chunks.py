"""Expansion of a log in a store: layouts and intents are objects that are put once, with control chunks between.

A control chunk holds no record, occupies one offset and carries the new layout epoch. A chunk may only follow a chunk
whose epoch is not higher than its own. Writers of the old layout therefore cannot append at or after a control chunk,
and its end is the threshold of the partition.
"""

import uuid
from dataclasses import asdict, dataclass

import pyarrow as pa

from spark_cas.core.errors import FormatError, StorageError
from spark_cas.core.expansion import Expansion, Intent
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, known_partitioner
from spark_cas.core.plan import MOST_PARTITIONS, Layout
from spark_cas.core.recorded_fields import INVALID_FIELDS, from_fields
from spark_cas.core.records import RECORDS
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import ChunkHeader, encode
from spark_cas.log.objects.partition import PartitionChunks
from spark_cas.log.objects.store import RetryingStore, Store
from spark_cas.log.objects.store_replies import PutReply

_NO_RECORDS = pa.Table.from_batches([], RECORDS)


@dataclass(frozen=True, slots=True)
class StoredLayouts:
    """Layouts and intents from a listing."""

    layouts: tuple[str, ...]
    """Paths of the layouts, oldest first."""
    pending: str | None
    """The path of the unfinished expansion; None if there is none."""


def stored_layouts(store: Store) -> StoredLayouts:
    """List the layouts of a log. The result is empty if there is no log. Raises StorageError."""
    listed = store.below(paths.LAYOUTS)
    layouts = tuple(each for each in listed if not paths.is_intent(each))
    # The intent of an expansion sorts just before its layout.
    return StoredLayouts(layouts, listed[-1] if layouts and paths.is_intent(listed[-1]) else None)


@dataclass(frozen=True, slots=True)
class RecordedLayout:
    """A layout as stored."""

    layout: Layout
    expansion: Expansion | None
    """The expansion that created the layout; None for the first layout."""
    partitioner: Partitioner
    """The partitioner of the log. A layout stores it unless it is the default."""


def read_layout(store: Store, path: str) -> RecordedLayout:
    """Read a layout. Raises FormatError, StorageError."""
    fields = documents.decode(_data(store, path), "a layout of the log")
    thresholds = fields.pop("thresholds", None)
    try:
        partitioner = known_partitioner(fields.pop("partitioner", DEFAULT_PARTITIONER))
        layout = from_fields(Layout, fields)
        if layout.partitions not in range(1, MOST_PARTITIONS + 1):
            raise ValueError(f"a log has 1 to {MOST_PARTITIONS} partitions")
        fields = {"epoch": layout.epoch, "partitions": layout.partitions, "thresholds": thresholds}
        expansion = None if thresholds is None else from_fields(Expansion, fields)
    except INVALID_FIELDS:
        raise FormatError(
            f"{path}: a layout of the log has other fields than expected. Is it a newer version's?"
        ) from None
    return RecordedLayout(layout, expansion, partitioner)


def read_expansions(store: Store, stored: StoredLayouts) -> tuple[tuple[Expansion, ...], Intent | None]:
    """Read the finished expansions, oldest first, and the unfinished one. Raises FormatError, StorageError."""
    # No expansion led to the first layout.
    result = (read_layout(store, path).expansion for path in stored.layouts[1:])
    pending = None if stored.pending is None else _decode_intent(_data(store, stored.pending))
    return tuple(each for each in result if each is not None), pending


def put_intent(store: RetryingStore, intent: Intent) -> Intent:
    """Record an expansion, unless one to its epoch is recorded. Return the recorded one.

    Raises FormatError, StorageError.
    """
    return _decode_intent(store.put_once(paths.intent(intent.epoch), documents.encode(asdict(intent))))


def put_layout(store: RetryingStore, recorded: RecordedLayout) -> None:
    """Record a layout, unless one of its epoch is recorded. Raises StorageError."""
    fields = asdict(recorded.layout)
    if recorded.expansion is not None:
        fields["thresholds"] = recorded.expansion.thresholds
    if recorded.partitioner != DEFAULT_PARTITIONER:
        # Versions that do not know this field reject the layout. Otherwise they would use the default partitioner.
        fields["partitioner"] = recorded.partitioner
    store.put_once(paths.layout(recorded.layout.epoch), documents.encode(fields))


def end_partition(store: RetryingStore, chunks: PartitionChunks, epoch: int) -> int:
    """Append the control chunk of an epoch to a partition, unless it has one, and return the end offset.

    After each put, this function reads the end again, for every reply of the store. If another writer appended
    first, it retries at the new end. Raises StorageError if other writers won, or the store did not reply, until the
    deadline.
    """
    doing = f"ending {store.at(paths.partition(chunks.number))}"
    wait = store.wait(doing)
    while True:
        bounds, newest = chunks.find_end()
        if newest and newest.header.layout_epoch >= epoch:
            return bounds.end_offset
        header = ChunkHeader(
            log_id=chunks.log_id,
            partition=chunks.number,
            base_offset=bounds.end_offset,
            end_offset=bounds.end_offset + 1,
            write_id=uuid.uuid4().hex,
            layout_epoch=epoch,
            previous=newest.id if newest else None,
            progress=None,
        )
        data, _ = encode(header, _NO_RECORDS)
        if store.create(paths.chunk(chunks.number, bounds.end_offset), data) is PutReply.ALREADY_EXISTS:
            there = chunks.stored_at(bounds.end_offset)
            if there and chunks.is_undecided(there):
                chunks.groups.abort(there.header.group)  # its layout ends here
        if not wait.again("others were faster, or the store did not answer"):
            raise StorageError(
                f"{doing}: others were faster, or the store did not answer, for {wait.waited:.0f} s. Expand the log "
                f"again, to the same count."
            )


def _decode_intent(data: bytes | memoryview) -> Intent:
    try:
        return from_fields(Intent, documents.decode(data, "an expansion of the log"))
    except INVALID_FIELDS:
        raise FormatError(
            "an expansion of the log was begun by another version, whose record has other fields. Finish it with "
            "that."
        ) from None


def _data(store: Store, path: str) -> memoryview:
    data = store.get(path)
    if data is None:
        raise FormatError(f"{path} vanished while it was read. Restore it from a copy.")
    return data
