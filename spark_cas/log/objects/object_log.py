"""The object log: the protocol of `spark_cas.log.protocol` over a store."""

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import (
    AccessDeniedError,
    FormatError,
    LogNotFoundError,
    LogNotSharedError,
    StorageError,
    StoreUnsafeError,
    UndecidedError,
)
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.finding import Finding, Problem, Severity
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import LayoutChanged, Outcome, ProgressLost, Refusal
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, Placement
from spark_cas.core.plan import MOST_PARTITIONS, Layout, Plan, Progress, progress_lost, resume_offset
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend, Preflight
from spark_cas.log.deadline import within
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.appending import Appender, append_blind
from spark_cas.log.objects.commit_groups import Groups
from spark_cas.log.objects.layouts import (
    RecordedLayout,
    StoredLayouts,
    put_intent,
    put_layout,
    read_expansions,
    read_layout,
    stored_layouts,
)
from spark_cas.log.objects.ledger import Ledger
from spark_cas.log.objects.partition import PartitionChunks
from spark_cas.log.objects.registry import ObjectRegistry
from spark_cas.log.objects.store import RetryingStore, Store, open_store
from spark_cas.log.objects.store_replies import PutReply
from spark_cas.log.spec import LogSpec


class ObjectLog(ObjectRegistry, Backend):
    """A log below the root of a store. Open one per thread and process; instances are not thread-safe."""

    def __init__(self, spec: LogSpec, store: Store | None = None) -> None:
        self.spec = spec
        self.topic = spec.topic
        self.patience_seconds = spec.patience_seconds
        self._store = RetryingStore(store or open_store(spec), spec)
        super().__init__(self._store)
        self._groups = Groups(self._store)
        self._chunks: dict[int, PartitionChunks] = {}
        self._ledgers: dict[PartitionChunks, Ledger] = {}
        self._own: dict[int, PartitionChunks] = {}
        """Per partition, the chunks as the group of the last write reads them."""
        self._log_id = ""
        self._partitioner = DEFAULT_PARTITIONER
        """The partitioner of the layout that was read last."""
        self._proven = False
        self._settled: dict[str, tuple[str, str]] = {}
        """Per kind, the path of the last synced document and its owner."""

    def layout(self) -> Layout:
        return self._newest_layout(stored_layouts(self._store))

    def _newest_layout(self, stored: StoredLayouts) -> Layout:
        if not stored.layouts:
            self._refuse_other_content()
            raise LogNotFoundError(
                f"there is no log at {self.spec.at()}. Check the address. To create a log, write with the option "
                f"partitions."
            )
        recorded = read_layout(self._store, stored.layouts[-1])
        layout, self._partitioner = recorded.layout, recorded.partitioner
        if layout.log_id != self._log_id:
            # Another log now has this address. Discard the cached state of the earlier one.
            self._chunks, self._ledgers, self._own, self._log_id = {}, {}, {}, layout.log_id
        return layout

    def preflight(
        self, *, begun: bool = False, idempotence: str = REQUIRED, placement: Placement | None = None
    ) -> Preflight:
        result = super().preflight(begun=begun, idempotence=idempotence, placement=placement)
        self._prove_put_if_absent()
        return result

    def findings(self) -> tuple[Finding, ...]:
        """Probe the store. The probe puts an object that exists, so it changes nothing."""
        where = self.spec.at()
        if self._store.get(paths.PROBE) is None:
            meaning = "the store was not probed, because the log has no probe object. The next write probes it"
            fix = "append a row, for example: spark-cas load --input FILE --job NAME --log LOG"
            return (Finding(Problem.STORE_UNPROBED, Severity.INFO, where, meaning, fix),)
        try:
            self._prove_put_if_absent()
        except StoreUnsafeError as error:
            fix = "use a store that honours conditional puts"
            return (Finding(Problem.STORE_UNSAFE, Severity.ERROR, where, error.message, fix),)
        except AccessDeniedError as error:
            # A reader lacks the right to put objects.
            return (Finding(Problem.STORE_UNPROBED, Severity.INFO, where, error.message, "grant the right to put"),)
        return ()

    def create(self, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Layout:
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"a log has 1 to {MOST_PARTITIONS} partitions, got {partitions}")
        if not self._store.below(paths.LAYOUTS):
            self._refuse_other_content()
            self._prove_put_if_absent()
        own = Layout(log_id=uuid.uuid4().hex, epoch=0, partitions=partitions)
        put_layout(self._store, RecordedLayout(own, None, partitioner))
        return self.layout()

    def bounds_of(
        self,
        partitions: Sequence[int],
        *,
        waiting: bool,
        at_least: Sequence[int] = (),  # noqa: ARG002 - the store reports no older end
    ) -> tuple[Bounds, ...]:
        """Return the bounds of each partition up to its first uncommitted chunk.

        The result contains each group's chunks in all partitions or in none. Raises UndecidedError if ``waiting``,
        and groups kept committing between the reads until the deadline.
        """
        with within(self.patience_seconds):
            wait = self._store.wait(f"looking where the partitions of {self._store.at()} end")
            while True:
                with self._groups.at_one_moment() as outcomes:
                    result = tuple(self._partition(each).find_end()[0] for each in partitions)
                ends = {each: bounds.end_offset for each, bounds in zip(partitions, result, strict=True)}
                # If a group commits meanwhile, only the partitions that were read later contain it.
                if all(each.is_below(ends) for each in outcomes.values()):
                    return result
                if not wait.again("loads are decided"):
                    if not waiting:
                        return result
                    raise UndecidedError(
                        f"looking where the partitions of {self._store.at()} end: for {wait.waited:.0f} s loads as a "
                        f"whole were decided again and again. Try again when fewer of them are written at once."
                    )

    def offset_since(self, partition: int, timestamp_ms: int) -> int | None:
        return self._partition(partition).offset_since(timestamp_ms)

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        with within(self.patience_seconds):
            changed = self._changed(partition, plan.log_id, plan.layout_epoch)
            if changed is not None:
                return changed
            self._prove_put_if_absent()
            self._require_recorded(plan)
            self._settle("plan", paths.entry("plan", plan.job), plan.pinned_by)
            ledger = self._ledger(partition, plan.group)
            planned_end = plan.end_offsets[partition]
            bounds, progress = ledger.progress(plan.job, plan.pinned_by, planned_end)
            if progress_lost(plan, partition, progress, bounds.start_offset) and ledger.may_be_trimmed(
                plan.job, plan.pinned_by, planned_end, bounds
            ):
                return ProgressLost(plan.job)
        return Claim(partition, plan, resume_offset(plan, partition, progress), progress, bounds.end_offset)

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        with within(self.patience_seconds):
            chunks = self._partition(claim.partition, claim.plan.group)
            if chunks.log_id != claim.plan.log_id:
                raise _not_shared()
            return Appender(self._store, chunks, self._ledger(claim.partition, claim.plan.group)).append(claim, chunk)

    def append_blind(self, partition: int, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:  # noqa: ARG002
        with within(self.patience_seconds):
            changed = self._changed(partition, layout.log_id, layout.epoch)
            if changed is not None:
                return changed
            self._prove_put_if_absent()
            return append_blind(self._store, self._partition(partition), layout, chunk)

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        chunks = self._partition(partition)
        bounds, _ = chunks.find_end()
        bounds.require(offsets)
        return chunks.read(bounds.start_offset, offsets, columns)

    def progress_of(
        self,
        partitions: Sequence[int],
        job: str,
        group: str = "",
        *,
        proven: bool = False,  # noqa: ARG002 - the store proves it
    ) -> tuple[Progress | None, ...]:
        with within(self.patience_seconds):
            plan = self.plan(job) if partitions else None
            # A job of an earlier layout has no rows in partitions that were added later.
            ends = [plan.end_offsets[each] if plan and each < plan.partitions else 0 for each in partitions]
            pinned_by = plan.pinned_by if plan else ""

            def read() -> tuple[Progress | None, ...]:
                requested = zip(partitions, ends, strict=True)
                return tuple(self._ledger(each, group).progress(job, pinned_by, end)[1] for each, end in requested)

            result = read()
            # If a group commits meanwhile, only the partitions that were read later contain it.
            return read() if plan and plan.whole and any(result) and not all(result) else result

    def trim(self, partition: int, before_offset: int, *, dry_run: bool = False) -> Bounds:
        return self._partition(partition).trim(before_offset, dry_run=dry_run)

    def layouts(self, known_epoch: int | None = None) -> Layouts:  # noqa: ARG002
        """Return all layouts and expansions. No other tool adds partitions to this log."""
        stored = stored_layouts(self._store)
        layout = self._newest_layout(stored)
        return Layouts(layout, *read_expansions(self._store, stored), self._partitioner)

    def begin_expansion(self, layout: Layout, partitions: int) -> Intent:
        return put_intent(self._store, Intent(layout.epoch + 1, partitions, layout.partitions))

    def end_partition(self, partition: int, intent: Intent) -> int:
        return self._partition(partition).end(intent.epoch)

    def finish_expansion(self, expansion: Expansion) -> None:
        """Record the new layout. The partitions are created with their first chunk."""
        layout = Layout(self.layout().log_id, expansion.epoch, expansion.partitions)
        put_layout(self._store, RecordedLayout(layout, expansion, self._partitioner))

    def _changed(self, partition: int, log_id: str, epoch: int) -> LayoutChanged | None:
        """Return a rejection if a plan of this epoch is no longer valid.

        Raises LogNotSharedError if this is another log, and ValueError if the partition is out of range.
        """
        stored = stored_layouts(self._store)
        try:
            layout = self._newest_layout(stored)
        except LogNotFoundError:
            raise _not_shared() from None
        if layout.log_id != log_id:
            raise _not_shared()
        if layout.epoch != epoch:
            return LayoutChanged(epoch, layout.epoch)
        if stored.pending is not None:
            return LayoutChanged(epoch, layout.epoch + 1)
        layout.require(partition)
        self._settle("layout", stored.layouts[-1], log_id)
        return None

    def _require_recorded(self, plan: Plan) -> None:
        """Raise LogNotSharedError unless this log holds the plan that a driver recorded.

        A copy of a log has the same id, but may lack the plan.
        """
        if not plan.pinned_by:
            return  # the job never resumes
        result = self.plan(plan.job)
        if result is None or result.pinned_by != plan.pinned_by:
            raise LogNotSharedError(
                f"the log at this address does not hold the plan that was recorded for job {plan.display_name!r}, "
                f"though it was the same log once. Where the address is a local directory, every worker must see the "
                f"same one, and no copy of it: use a shared directory or an object store. (If the job was forgotten "
                f"meanwhile, run it again.)",
                job=plan.display_name,
            )

    def _settle(self, kind: str, path: str, whose: str) -> None:
        """Sync a document to disk once, because its writer may have crashed before it did so."""
        if self._settled.get(kind) != (path, whose):
            self._store.settle(path)
            self._settled[kind] = path, whose

    def _partition(self, partition: int, group: str = "") -> PartitionChunks:
        """Return a partition as all readers read it, or as the writers of a group do."""
        if partition not in self._chunks:
            layout = self.layout()
            layout.require(partition)
            self._chunks[partition] = PartitionChunks(self._store, partition, layout.log_id, self._groups)
        if not group:
            return self._chunks[partition]
        own = self._own.get(partition)
        if own is None or own.group != group:
            if own is not None:
                self._ledgers.pop(own, None)
            own = self._own[partition] = self._chunks[partition].as_read_by(group)
        return own

    def _ledger(self, partition: int, group: str = "") -> Ledger:
        chunks = self._partition(partition, group)
        if chunks not in self._ledgers:
            self._ledgers[chunks] = Ledger(self._store, chunks)
        return self._ledgers[chunks]

    def _prove_put_if_absent(self) -> None:
        """Verify, once per instance, that the store rejects a put if the name exists. All guarantees depend on this.

        Raises StoreUnsafeError if it overwrites the object, and StorageError if it does not reply until the deadline.
        """
        if self._proven:
            return
        probe = documents.encode({"probe": "a second put on this name must fail"})
        doing = f"writing {self._store.at(paths.PROBE)}"
        wait = self._store.wait(doing)
        while True:
            reply = self._store.create(paths.PROBE, probe)
            if reply is PutReply.CREATED:
                reply = self._store.create(paths.PROBE, probe)
            if reply is PutReply.CREATED:
                raise StoreUnsafeError(
                    "the store overwrote an object in spite of put-if-absent (If-None-Match: *). "
                    "Two writers would overwrite each other's rows on it. Nothing was appended. Use a store or a "
                    "version of it that honours conditional puts."
                )
            if reply is PutReply.ALREADY_EXISTS:
                self._proven = True
                return
            if not wait.again("the store did not answer"):
                raise StorageError(
                    f"{doing}: the store did not answer for {wait.waited:.0f} s. Check that it is well, then run "
                    f"the same job again."
                )

    def _refuse_other_content(self) -> None:
        # Another creator may have written below _log just now, or crashed before it recorded the layout.
        if any(name != paths.LOG for name in self._store.folders("")):
            raise FormatError(
                f"{self.spec.at()} holds something, but no log of spark_cas (there is no _log/layout in it). Give "
                f"the address of a log, or of an empty or new directory."
            )


def _not_shared() -> LogNotSharedError:
    return LogNotSharedError(
        "the log at this address is not the one that the plan was made for. Where the address is a local "
        "directory, every worker must see the same one: use a shared directory or an object store."
    )
