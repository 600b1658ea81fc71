"""The layouts and expansions of a log: objects that are put once."""

from dataclasses import asdict, dataclass

from spark_cas.core.errors import FormatError
from spark_cas.core.expansion import Expansion, Intent
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, known_partitioner
from spark_cas.core.plan import MOST_PARTITIONS, Layout
from spark_cas.core.recorded_fields import from_fields, in_format
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.store import RetryingStore, Store


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
    with in_format(f"the layout {path}"):
        partitioner = known_partitioner(fields.pop("partitioner", DEFAULT_PARTITIONER))
        layout = from_fields(Layout, fields)
        if layout.partitions not in range(1, MOST_PARTITIONS + 1):
            raise ValueError(f"a log has 1 to {MOST_PARTITIONS} partitions")
        fields = {"epoch": layout.epoch, "partitions": layout.partitions, "thresholds": thresholds}
        expansion = None if thresholds is None else from_fields(Expansion, fields)
    return RecordedLayout(layout, expansion, partitioner)


def read_expansions(store: Store, stored: StoredLayouts) -> tuple[tuple[Expansion, ...], Intent | None]:
    """Read the finished expansions, oldest first, and the unfinished one. Raises FormatError, StorageError."""
    # No expansion led to the first layout.
    result = (read_layout(store, path).expansion for path in stored.layouts[1:])
    pending = None if stored.pending is None else _decode_intent(_data(store, stored.pending))
    return tuple(each for each in result if each is not None), pending


def put_intent(store: RetryingStore, intent: Intent) -> Intent:
    """Record an expansion, unless one to its epoch is recorded. Return the recorded one."""
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


def _decode_intent(data: bytes | memoryview) -> Intent:
    with in_format("the record of an expansion that was begun"):
        return from_fields(Intent, documents.decode(data, "an expansion of the log"))


def _data(store: Store, path: str) -> memoryview:
    data = store.get(path)
    if data is None:
        raise FormatError(f"{path} vanished while it was read. Restore it from a copy.")
    return data
