"""Registry, load locks and layouts: entries of jobs and groups, layouts and expansions are objects that are put once.

The locks are numbered objects. A writer changes them by creating the object with the next number.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from spark_cas.core.errors import FormatError, StorageError
from spark_cas.core.expansion import Expansion, Intent
from spark_cas.core.group import ABORTED, GroupOutcome, outcome_from_json, outcome_to_json
from spark_cas.core.load_locks import LoadLocks, load_locks_from_json
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, known_partitioner
from spark_cas.core.plan import MOST_PARTITIONS, Layout, Plan, input_entry
from spark_cas.core.recorded_fields import from_fields, in_format, recorded
from spark_cas.log import clock
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import StoredChunk
from spark_cas.log.objects.store import RetryingStore, Store
from spark_cas.log.protocol import EntryKind

_MOST_REMEMBERED = 1000
_KEPT_LOCKS = 16
"""Number of newest objects with locks to keep. A writer that puts an older number may have reused a freed name, so
its put fails."""

_LOG = logging.getLogger("spark_cas")
_reported: set[str] = set()
"""Logs for which this process has logged that old locks remain."""


class ObjectRegistry:
    """Implement `spark_cas.log.protocol.Registry` and `spark_cas.log.protocol.LockTable` in a store."""

    def __init__(self, store: RetryingStore) -> None:
        self._objects = store

    def entry(self, kind: EntryKind, job: str) -> str | None:
        data = self._objects.get(paths.entry(kind, job))
        return None if data is None else _text(data, kind, job)

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        stored = self._objects.put_once(paths.entry(kind, job), documents.encode(json.loads(text)))
        return _text(stored, kind, job)

    def remove_cancelled(self, run: str) -> None:
        self._objects.delete([paths.entry("cancelled", run)])

    def jobs(self) -> tuple[str, ...]:
        # Do not list folders: a directory keeps the folder of a forgotten job.
        result = map(paths.planned_job, self._objects.below(paths.JOBS))
        return tuple(sorted(job for job in result if job is not None))

    def forget(self, plan: Plan) -> None:
        """Remove the entries of a job. Its chunks remain, but later plans of this name do not search them."""
        for partition in range(plan.partitions):
            closed = paths.closed(plan.job, plan.pinned_by, partition)
            self._objects.delete([closed, paths.job_hint(plan.job, partition)])
        inputs = [paths.entry("input", input_entry(plan.job, plan.input))] if plan.input else []
        self._objects.delete([paths.entry("completion", plan.job), *inputs])
        # As soon as the plan is removed, a load may plan a job of this name, even if the reply was lost. `delete_if`
        # reads the plan before each try, but the read and the delete are two steps. Therefore no load of that name
        # may run while two processes forget the job.
        self._objects.delete_if(
            paths.entry("plan", plan.job),
            lambda result: recorded(Plan, _text(result, "plan", plan.job), plan.job) == plan,
        )

    def load_locks(self) -> LoadLocks:
        while True:
            numbers = self._lock_numbers()
            if not numbers:
                return LoadLocks()
            data = self._objects.get(paths.load_locks(numbers[-1]))
            if data is not None:  # otherwise newer locks have replaced these since the listing
                return load_locks_from_json(json.dumps(documents.decode(data, "the locks of the log")))

    def put_load_locks(self, load_locks: LoadLocks) -> bool:
        own = documents.encode(asdict(load_locks))
        if self._objects.put_once(paths.load_locks(load_locks.number), own) != own:
            return False
        numbers = self._lock_numbers()
        old = [each for each in numbers if each <= numbers[-1] - _KEPT_LOCKS]
        try:
            self._objects.delete([paths.load_locks(each) for each in old])
        except StorageError as error:
            # A load also works without the right to delete objects.
            where = self._objects.at(paths.LOAD_LOCKS)
            if where not in _reported:
                _reported.add(where)
                _LOG.warning("old locks stay in %s, and loads go on: %s", where, error.message)
        return load_locks.number not in old

    def _lock_numbers(self) -> list[int]:
        result = map(paths.load_locks_number, self._objects.below(paths.LOAD_LOCKS))
        return sorted(each for each in result if each is not None)


def _text(data: bytes | memoryview, kind: EntryKind, job: str) -> str:
    return json.dumps(documents.decode(data, f"the {kind} of job {job!r}"))


class Groups:
    """Read the outcomes of commit groups, which are entries of the registry, and cache them."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._decided: OrderedDict[str, GroupOutcome] = OrderedDict()
        self._undecided: set[str] | None = None
        self._read_outcomes: dict[str, GroupOutcome] = {}

    @contextmanager
    def at_one_moment(self) -> Iterator[dict[str, GroupOutcome]]:
        """Keep groups without an outcome undecided within this context, even if an outcome is recorded meanwhile.

        Yield the outcomes that were read within the context.
        """
        self._undecided, self._read_outcomes = set(), {}
        try:
            yield self._read_outcomes
        finally:
            self._undecided = None

    def outcome(self, group: str) -> GroupOutcome | None:
        """Return the outcome of a group; None if none is recorded."""
        if self._undecided is not None and group in self._undecided:
            return None
        if group not in self._decided:
            data = self._store.get(paths.entry("outcome", group))
            if data is None:
                if self._undecided is not None:
                    self._undecided.add(group)
                return None
            # Other chunks will depend on this outcome. Its writer may have crashed before the sync to disk.
            self._store.settle(paths.entry("outcome", group))
            self._remember(group, data)
        if self._undecided is not None:
            self._read_outcomes[group] = self._decided[group]
        return self._decided[group]

    def visible(self, stored: StoredChunk, own: str) -> StoredChunk | None:
        """Return a chunk as a writer of the group ``own`` reads it.

        If the chunk belongs to another group without an outcome, return None. If its group was aborted, the result
        has no progress (`StoredChunk.is_void`).
        """
        header = stored.header
        if not header.group:
            return stored
        outcome = self.outcome(header.group)
        if outcome is None:
            return stored if header.group == own else None
        if outcome.holds(header.partition, header.end_offset):
            return stored
        return StoredChunk(replace(header, progress=None), stored.checksum)

    def abort(self, group: str) -> None:
        document = documents.encode(json.loads(outcome_to_json(ABORTED)))
        self._remember(group, self._store.put_once(paths.entry("outcome", group), document))

    def abort_overdue(self, stored: StoredChunk) -> None:
        if clock.now_ms() >= stored.header.decide_by_ms:
            self.abort(stored.header.group)

    def _remember(self, group: str, data: bytes | memoryview) -> None:
        text = json.dumps(documents.decode(data, f"the outcome of group {group}"))
        self._decided[group] = outcome_from_json(text, group)
        if len(self._decided) > _MOST_REMEMBERED:
            self._decided.popitem(last=False)


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
