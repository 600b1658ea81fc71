"""The base class of a backend: the methods of `spark_cas.log.protocol`, and defaults built on them.

The defaults for settings, times and expansions apply unless a backend overrides them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from spark_cas.core.errors import OptionError, UnreadableRecordError
from spark_cas.core.expansion import Intent
from spark_cas.core.finding import Finding, OpenTransaction
from spark_cas.core.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, OFF, REQUIRED
from spark_cas.core.micro_batch import unexpired_ms
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.partitioner import Partitioner, Placement
from spark_cas.core.plan import Completion, Layout, Plan, Progress
from spark_cas.core.recorded_fields import recorded, to_json
from spark_cas.core.records import TIMESTAMP_TYPE, first_since
from spark_cas.log import timing
from spark_cas.log.protocol import Admin, Blind, Expandable, LockTable, Log, Registry
from spark_cas.log.timing import RETRY_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of a check of a log before the first row is written."""

    max_record_bytes: int | None
    """The largest record that the log accepts, in bytes of key, value and headers.

    None if a chunk may be one record, or if the limit is known only after compression.
    """
    notes: tuple[str, ...]
    """Warnings about settings that weaken a guarantee, each with its fix."""
    guarantee: str = EXACTLY_ONCE
    """The guarantee that a write gets. It may be weaker than the requested one."""
    keys_elsewhere: str = ""
    """Evidence and fix if existing keys are in other partitions than the write assigns; empty if none were found."""
    max_record_setting: str = "a limit of the log"
    """The setting with the limit of `max_record_bytes`, for errors."""
    keys_required: bool = False
    """Whether the log rejects records without a key."""


class Backend(Log, Blind, Admin, Expandable, Registry, LockTable):
    """A complete backend. Use it as a context manager, which closes its clients at the end."""

    topic: str
    """The log's name, as readers see it in the column ``topic``."""
    patience_seconds: float = RETRY_TIMEOUT_MS / 1000
    """The retry timeout for transient errors, in seconds."""
    group_in_process: bool = False
    """Whether only the process that appends to a commit group (`spark_cas.core.group`) can commit it."""
    removes_by_itself = False
    """Whether records and ledger entries can be removed without a trim, as by retention."""
    ledger_at_once = False
    """Whether the ledger entries of a job in all partitions take one request, as the entry in one partition does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing. A backend with clients overrides this."""

    def layout_now(self) -> Layout:
        """Return the layout for a caller that creates the log if it does not exist.

        It reports a missing log at once, without a retry, although another process may have just created it.
        """
        return self.layout()

    def record_partitioner(self, partitioner: Partitioner) -> Partitioner:
        """Record the partitioner of the log unless one is recorded, and return the recorded one.

        A backend overrides this if its `create` does not record the partitioner.
        """
        return self.layouts().partitioner or partitioner

    def has_id(self, log_id: str) -> bool:
        """Return whether this log has the given id.

        The answer may be slightly out of date, but each append checks the id.

        Raises as `layout_now`.
        """
        return self.layout_now().log_id == log_id

    def bounds(self, partition: int) -> Bounds:
        """Return the bounds of a partition. Every append acknowledged before the call is below ``end_offset``.

        Raises:
            UndecidedError: An append is still undecided after the retry timeout.
        """
        return self.bounds_of([partition], waiting=True)[0]

    def progress(self, partition: int, job: str, group: str = "") -> Progress | None:
        """Return the ledger entry of a job in a partition as `progress_of`.

        None if the log has no entry, or no longer.
        """
        return self.progress_of([partition], job, group)[0]

    def limits_when_created(self) -> Preflight:
        """Return the limits of records in a log that `create` would create now. Unknown limits are left out.

        Raises StorageError.
        """
        return Preflight(None, ())

    def preflight(
        self,
        *,
        begun: bool = False,  # noqa: ARG002
        idempotence: str = REQUIRED,
        placement: Placement | None = None,  # noqa: ARG002
    ) -> Preflight:
        """Check whether a write to this log can succeed, before any row is written.

        Args:
            begun: Whether a stream has already written a batch. Then settings and permissions are checked, but no
                trial write is made.
            idempotence: `REQUIRED` raises if the log does not give exactly once. `REQUESTED` returns the guarantee
                that the log gives. `OFF` does not check for exactly once. Each of them rejects a log where one writer
                can overwrite the rows of another.
            placement: If given, a backend that other producers write to samples existing keys. It reports the keys
                that are in other partitions than this partitioner assigns.

        Raises:
            LogNotFoundError: The log does not exist.
            StoreUnsafeError: The store cannot keep the promises of `append`.
            StorageError: The store is unreachable, or rejects the credentials or the permission.
        """
        self.layout()
        return Preflight(None, (), AT_LEAST_ONCE if idempotence == OFF else EXACTLY_ONCE)

    def read_with_gaps(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...]
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Yield records as `read`, with the offset of each record: gaps may be within a batch and do not split it.

        ``columns`` may also name `TIMESTAMP_TYPE`. That column is present unless it is 0 for all records.
        """
        plain = tuple(name for name in columns if name != TIMESTAMP_TYPE)
        for base_offset, records in self.read(partition, offsets, plain):
            yield np.arange(base_offset, base_offset + records.num_rows), records

    def read_leniently(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield as `read`, with a record whose headers cannot be read alone and without the column ``headers``.

        Raises the errors of `read`, and UnreadableRecordError only for a record that cannot be read in any columns.
        """
        without_headers = tuple(name for name in columns if name != "headers")
        next_offset, end_offset = offsets.base_offset, offsets.end_offset
        while next_offset < end_offset:
            try:
                for base_offset, records in self.read(partition, OffsetRange(next_offset, end_offset), columns):
                    yield base_offset, records
                    next_offset = base_offset + records.num_rows
            except UnreadableRecordError as error:
                if error.offset is None or error.offset < next_offset:
                    raise
                yield from self.read(partition, OffsetRange(next_offset, error.offset), columns)
                next_offset = error.offset + 1
                yield from self.read(partition, OffsetRange(error.offset, next_offset), without_headers)
            else:
                return

    def offset_since(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first committed record with a timestamp of at least this time.

        Timestamps need not rise with offsets, so records after it may be older.

        The time is in milliseconds since 1970. The result is None if all committed records are older.
        """
        first = self.dated_since(partition, timestamp_ms)
        return None if first is None else first[0]

    def dated_since(self, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the first offset with a timestamp of at least this time, and that timestamp in milliseconds.

        The result is evidence of the time at which an offset existed. Unlike `offset_since`, it costs one request on
        Kafka, and counts transaction markers and aborted records. Raises as `offset_since`.
        """
        for base, records in self.read(partition, self.bounds(partition).range, ("timestamp",)):
            result = first_since(records, timestamp_ms)
            if result is not None:
                return base + result, records.column("timestamp").cast(pa.int64())[result].as_py()
        return None

    def unproven_below(
        self, partition: int, end_offset: int, now_ms: int, *, pinned_at_ms: int, pinned_end: int
    ) -> int:
        """Return the offset below which an expected offset may be too old to prove that its key was not deleted.

        Compaction removes a deletion after some time. An expected offset is young enough if a lower offset has a
        young timestamp. It is also young enough if it is at least ``pinned_end``, which was the partition's end at
        ``pinned_at_ms``, and that time is young. Young means at most half of the time for which the log keeps
        deletions, because clocks differ. A timestamp ahead of now proves nothing. Raises as `dated_since`.
        """
        kept_ms = self.tombstones_kept_ms()
        if kept_ms is None:
            return 0
        young = self.dated_since(partition, now_ms - kept_ms // 2)
        ahead = young is not None and young[1] >= now_ms + 1000 * timing.current().clock_skew
        below = end_offset if young is None or ahead else young[0] + 1
        return min(below, pinned_end) if now_ms - pinned_at_ms < kept_ms // 2 else below

    def tombstones_kept_ms(self) -> int | None:
        """Return how long the log keeps a record without a value, which deletes its key, at least, in milliseconds.

        None if it is kept as long as any record, 0 if the settings may not be read. A reader that pauses for longer
        may miss deletions without noticing.
        """
        return None

    def findings(self) -> tuple[Finding, ...]:
        """Return problems of the brokers or of the store. The call changes nothing."""
        return ()

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Return the transactions that hold back readers of the log, and those of its own writers, oldest first.

        Raises:
            OptionError: A package for the requests is missing, or it does not support a setting of the connection.
        """
        return ()

    def abort_transaction(
        self,
        transaction: OpenTransaction,  # noqa: ARG002
        partition: int | None = None,  # noqa: ARG002
        watched_ms: int = 0,  # noqa: ARG002
    ) -> None:
        """Abort an open transaction.

        The coordinator aborts it in all partitions, and fences its producer. If the transaction hangs, the broker
        aborts it in one partition.

        Args:
            transaction: An element of `open_transactions`.
            partition: If no coordinator will end the transaction, the partition in which to abort it.
                Then the transaction has to be the same as before.
            watched_ms: The time since a call of `open_transactions` returned this transaction.

        Raises:
            OptionError: The transaction has no visible coordinator, but it may still end by itself, or it has
                changed.
            StorageError: The brokers rejected the request.
            UnknownOutcomeError: The brokers did not confirm the abort.
        """
        raise OptionError("this log has no transactions. Nothing was changed.")

    def ledger_kept_ms(self) -> int | None:
        """Return how long a ledger entry is kept after the newest chunk of its job, in milliseconds.

        None if it is kept permanently, or if this is not known. Raises StorageError.
        """
        return None

    def unexpired_ms(self) -> int:
        """Return the age below which a ledger entry cannot have expired, in milliseconds.

        A log that may not report how long it keeps entries counts as one with Kafka's defaults. Raises StorageError.
        """
        return unexpired_ms(self.ledger_kept_ms())

    def commit_to_group(self, group: str, offsets: Mapping[int, int], seconds: float) -> None:  # noqa: ARG002
        """Commit the offsets of a reader to a consumer group, by partition. The group must have no active members.

        Raises:
            OptionError: The log has no consumer groups.
        """
        raise OptionError("this log has no consumer groups.")

    def accelerators(self) -> Mapping[str, bool]:
        """Return the accelerators of the backend, each with whether it is in use."""
        return {}

    def check_partitions_may_be_added(self, partitions: int) -> None:
        """Check whether the log may have this many partitions, as far as possible before anything is recorded.

        Raises:
            LogNotFoundError: The log does not exist.
            StorageError: The log rejects the expansion.
        """

    def add_partitions(self, intent: Intent) -> None:
        """Create the partitions of an expansion, unless they exist. Raises StorageError."""

    def record_plan(self, plan: Plan) -> Plan:
        """Record a job's plan unless one is recorded, and return the recorded one."""
        return recorded(Plan, self.put_entry("plan", plan.job, to_json(plan)), plan.job)

    def plan(self, job: str) -> Plan | None:
        """Return the recorded plan of a job, None if there is none. Raises FormatError, StorageError."""
        text = self.entry("plan", job)
        return None if text is None else recorded(Plan, text, job)

    def record_completion(self, completion: Completion) -> Completion:
        """Record the completion of a job unless one is recorded. Return the recorded one."""
        text = self.put_entry("completion", completion.job, to_json(completion))
        return recorded(Completion, text, completion.job)

    def completion(self, job: str) -> Completion | None:
        """Return the completion of a job, None if it is not complete. Raises FormatError, StorageError."""
        text = self.entry("completion", job)
        return None if text is None else recorded(Completion, text, job)
