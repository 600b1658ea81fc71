"""A backend as it is used: what `spark_cas.log.protocol` has each of them write, and what follows from that.

What is said here of settings, times and expansions holds where a backend does not know better.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from spark_cas.core.expansion import Intent
from spark_cas.core.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, OFF, REQUIRED
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.partitioner import Partitioner, Placement
from spark_cas.core.plan import Completion, Layout, Plan, Progress
from spark_cas.core.plan_json import recorded_completion, recorded_plan, to_json
from spark_cas.core.records import TIMESTAMP_TYPE, first_since
from spark_cas.log.patience import PATIENCE_MS
from spark_cas.log.protocol import Admin, Blind, Expandable, Grantor, Log, Registry


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a look at a log's settings found that a writer should know before its first row."""

    max_record_bytes: int | None
    """The largest record that the log takes, in bytes of key, value and headers.

    None if a chunk may be one record, or if that is known only after compression.
    """
    notes: tuple[str, ...]
    """What weakens a promise, each in plain words with what to do about it."""
    guarantee: str = EXACTLY_ONCE
    """What a write can have here, of what it asked for."""
    keys_elsewhere: str = ""
    """Evidence and fix if existing keys are in other partitions than the write assigns; empty if none were found."""
    max_record_setting: str = "a limit of the log"
    """The setting with the limit of `max_record_bytes`, for errors."""


class Backend(Log, Blind, Admin, Expandable, Registry, Grantor):
    """All of a backend. A context manager: leaving it lets go of its clients."""

    topic: str
    """The log's name, as readers see it in the column of that name."""
    patience_seconds: float = PATIENCE_MS / 1000
    """How long what passes is waited for."""
    group_in_process: bool = False
    """Whether a group (`spark_cas.core.group`) is open in the process that appends to it, which has to decide it."""
    removes_by_itself = False
    """Whether records can be removed without a trim, as by retention."""
    ledger_at_once = False
    """Whether the entries of a job in all partitions cost no more than that in one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There may be nothing to let go of."""

    def layout_now(self) -> Layout:
        """`layout` for who makes the log where there is none: that is told at once, though others may have made it.

        Raises LogNotFoundError, FormatError, StorageError.
        """
        return self.layout()

    def record_partitioner(self, partitioner: Partitioner) -> Partitioner:
        """Record the partitioner of the log unless one is recorded, and return the recorded one.

        Where `create` does not record it, a backend overrides this. Raises LogNotFoundError, FormatError,
        StorageError.
        """
        return self.layouts().partitioner or partitioner

    def has_id(self, log_id: str) -> bool:
        """Whether this is the log with an id, as of now, or of a moment ago: an append finds out before it is made.

        Raises what `layout_now` does.
        """
        return self.layout_now().log_id == log_id

    def bounds(self, partition: int) -> Bounds:
        """What a partition keeps: every append acknowledged before this call lies below ``end_offset``.

        Raises LogNotFoundError, ChunkDamagedError, StorageError.
        """
        return self.bounds_of([partition], waiting=True)[0]

    def progress(self, partition: int, job: str, group: str = "") -> Progress | None:
        """The ledger entry of a job, as `progress_of` tells it; None when the log holds nothing of it, or no longer.

        Raises LogNotFoundError, ChunkDamagedError, StorageError.
        """
        return self.progress_of([partition], job, group)[0]

    def preflight(
        self,
        *,
        begun: bool = False,  # noqa: ARG002
        idempotence: str = REQUIRED,
        placement: Placement | None = None,  # noqa: ARG002
    ) -> Preflight:
        """Find out whether this log can be written to from here, before anything is.

        Of a stream that has ``begun``, for each of whose batches this is asked, nothing is tried: it is only looked.
        With ``idempotence`` `REQUESTED` a log that does not give exactly once tells which guarantee it gives, where
        it else raises; with `OFF` it is not looked whether it would. A log that cannot keep one writer from
        overwriting another's rows is refused with each of them.

        With ``placement``, a backend that other producers write to samples existing keys, and reports the keys that
        are in other partitions than that partitioner assigns.

        Raises what an append would come to later: LogNotFoundError, StoreUnsafeError when the promises of `append`
        cannot be kept, StorageError when the store cannot be reached or refuses the credentials or the right.
        """
        self.layout()
        return Preflight(None, (), AT_LEAST_ONCE if idempotence == OFF else EXACTLY_ONCE)

    def read_with_gaps(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...]
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """As `read`, but as (the offset of each, records): gaps may lie within a yield too, and make none smaller.

        ``columns`` may name `TIMESTAMP_TYPE` too. Records have it where it is not 0 for all of them.
        """
        plain = tuple(name for name in columns if name != TIMESTAMP_TYPE)
        for base_offset, records in self.read(partition, offsets, plain):
            yield np.arange(base_offset, base_offset + records.num_rows), records

    def offset_since(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the offset of the first committed record with a timestamp of at least this time.

        Timestamps need not rise with offsets, so records after it may be older.

        Args:
            partition: The partition to search, from its start to its end.
            timestamp_ms: The time in milliseconds since 1970.

        Returns:
            The offset of a record, or None if all committed records are older.

        Raises:
            LogNotFoundError, ChunkDamagedError, StorageError.
        """
        first = self.dated_since(partition, timestamp_ms)
        return None if first is None else first[0]

    def dated_since(self, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the first offset with a timestamp of at least this time, and that timestamp in milliseconds.

        This is evidence of the time at which the log held something. Unlike `offset_since` it costs one request on
        Kafka, and counts transaction markers and aborted records. Raises as `offset_since`.
        """
        for base, records in self.read(partition, self.bounds(partition).range, ("timestamp",)):
            found = first_since(records, timestamp_ms)
            if found is not None:
                return base + found, records.column("timestamp").cast(pa.int64())[found].as_py()
        return None

    def forget_leaders(self) -> None:
        """Have the next look ask anew who leads the partitions: a broker that was deposed answers as of then."""

    def tombstones_kept_ms(self) -> int | None:
        """For how long a record without a value, which deletes its key, is kept at least; None: as long as any.

        Whoever has not read on for longer may have missed that a key was deleted, with nothing to show for it. 0
        where the settings may not be seen. Raises LogNotFoundError, StorageError.
        """
        return None

    def check_partitions_may_be_added(self, partitions: int) -> None:
        """Find out whether the log may have so many partitions, as far as can be told before anything is recorded.

        Raises LogNotFoundError, StorageError when it refuses.
        """

    def add_partitions(self, intent: Intent) -> None:
        """Make the partitions that an expansion gives the log, unless it has them. Raises StorageError."""

    def record_plan(self, plan: Plan) -> Plan:
        """Record a job's plan and return the job's first one, which may be another.

        Raises FormatError, StorageError.
        """
        return recorded_plan(self.put_entry("plan", plan.job, to_json(plan)), plan.job)

    def plan(self, job: str) -> Plan | None:
        """The first plan of a job, None when it has none. Raises FormatError, StorageError."""
        text = self.entry("plan", job)
        return None if text is None else recorded_plan(text, job)

    def record_completion(self, completion: Completion) -> Completion:
        """Record that a job is done and return the first record of it. Raises FormatError, StorageError."""
        return recorded_completion(self.put_entry("completion", completion.job, to_json(completion)), completion.job)

    def completion(self, job: str) -> Completion | None:
        """What a job was completed with, None while it is not. Raises FormatError, StorageError."""
        text = self.entry("completion", job)
        return None if text is None else recorded_completion(text, job)
