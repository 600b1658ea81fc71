"""The methods that each backend implements: six data methods, administration, the registry and the load lock.

`spark_cas.log.backend` adds methods that are built on them.

The outcomes of a condition are return values (`spark_cas.core.outcome`). Exceptions are `ConditionalLogError`. Each
method, and each function that calls one, may raise LogNotFoundError, FormatError, ChunkDamagedError or StorageError:
the log does not exist, data is corrupt, or the store failed. Docstrings name the other errors.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.load_locks import LoadLocks
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Outcome, Refusal
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner
from spark_cas.core.plan import Layout, Plan, Progress
from spark_cas.core.records import RECORDS

EntryKind = Literal["plan", "completion", "outcome", "input", "cancelled"]
"""The kinds of registry entries, and the name that each is stored under.

``plan`` and ``completion`` use the name of a job. ``outcome`` uses the name of a commit group
(`spark_cas.core.group`). ``input``, the input list of a bulk load, uses `spark_cas.core.plan.input_entry`.
``cancelled``, the rejection that cancelled a run, uses the name of the run (`spark_cas.log.load.cancelling`).
"""


class Log(Protocol):
    """The six data methods of a log."""

    def layout(self) -> Layout:
        """Return the newest layout. Raises LogNotFoundError, FormatError, StorageError."""

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        """Claim a partition for the job of ``plan``, and return the progress of that job.

        If the backend can fence, the claim fences every earlier writer. An earlier writer that was idle can claim the
        partition back as long as nothing has been appended since (decision 0011). If the backend cannot fence, a
        claim is only advisory, and `append` alone is safe.

        Changes that other tools made a moment ago may be detected only by `append`.

        Returns:
            The claim; LayoutChanged if the plan's layout epoch is not the newest or an expansion is pending;
                ProgressLost if rows of the job may have been trimmed.

        Raises:
            LogNotSharedError: This is not the log that the plan was made for.
            StoreUnsafeError: The store cannot keep the promise of `append`.
        """

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk once, at the claim's expected offset, or leave nothing of it visible.

        The ledger entry of the job is written in the same atomic step. If rows have expected offsets of their own,
        each must match the offset that the row gets (`check_rows`).

        If the plan has a commit group, only writers of that group see the chunk until the group commits. A later
        append of another group waits for that, and aborts the group after its deadline. In a group, a chunk without
        records that does not complete the job only reserves an offset.

        If claims are fenced, a chunk that changes nothing, not even the ledger, verifies that the claim is the
        newest. The result is `Fenced` if that is not certain.

        This is one attempt. It retries only transport failures, with the same bytes, until a deadline ends them in
        Unknown. With one claim, at most one append ever succeeds.

        `Fenced` usually means that the log has a chunk of the same job that the claim does not include.

        Raises:
            UndecidedError: An earlier group did not commit or abort in time.
            StorageError: The store definitely rejected the chunk, for example because it is full or access is denied.
            RecordTooLargeError: The chunk is larger than the store accepts.
            LogNotSharedError: The address now belongs to another log. An object store checks that only in `claim`.
            ChunkDamagedError, FormatError: The existing data does not allow an append.
        """

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the committed records of a range in offset order, as (offset of the first, records).

        Each yield has the requested columns of `RECORDS`, and its records have consecutive offsets. Gaps are between
        yields. With no columns, the yields still have the number of records.

        Raises:
            ValueError: The range is not within the bounds.
            ChunkDamagedError: A chunk is corrupt. Raised before any of its records is yielded.
            TrimmedError: The log was trimmed during the read. Raised before any record of the chunk is yielded.
            UnreadableRecordError: The column ``headers`` is requested and cannot represent the headers of a record,
                or a batch of records cannot be decompressed or is too large when it is.
        """

    def bounds_of(
        self, partitions: Sequence[int], *, waiting: bool, at_least: Sequence[int] = ()
    ) -> tuple[Bounds, ...]:
        """Return the bounds of some partitions, with as few requests as possible.

        If ``waiting``, every append acknowledged before the call is below its ``end_offset``. Each atomic load is
        below the end offsets of all these partitions, or of none.

        Otherwise, the call does not wait for open transactions. Everything below ``end_offset`` is still committed or
        aborted, but an append acknowledged a moment ago may be at or above it. Use this if the caller reads the
        remaining records later.

        Args:
            waiting: Whether to wait until all acknowledged appends are visible.
            at_least: End offsets that the caller knows or expects, in the order of the partitions. If an end offset
                is lower, the backend verifies that before it returns: the log lost records, or never had them.

        Raises:
            UndecidedError: ``waiting`` is set, and a transaction is still open after the retry timeout.
        """

    def progress_of(
        self, partitions: Sequence[int], job: str, group: str = "", *, proven: bool = False
    ) -> tuple[Progress | None, ...]:
        """Return a job's ledger entries in some partitions.

        An entry is None if the log does not have it, or no longer.

        The rows of a commit group count after its commit, and before it only for a caller that names the ``group``.
        With ``proven``, the backend proves that the entries include every commit before the call. Use it if only the
        entries decide which rows to append.
        """


class Admin(Protocol):
    """Create and trim a log. Tasks that write rows need neither."""

    def create(self, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Layout:
        """Create the log unless it exists, and return its layout, which another creator may have chosen.

        If the layout of the backend includes the partitioner, it is recorded now. Otherwise the first plan that names
        one records it.

        Raises:
            FormatError: The address holds other data.
            StoreUnsafeError, StorageError: The store cannot be used.
        """

    def trim(self, partition: int, before_offset: int, *, dry_run: bool = False) -> Bounds:
        """Delete records below an offset, and none at or above it. Return the new bounds.

        If the backend stores chunks, the chunk that contains the offset stays complete, and the newest chunk always
        stays.

        With ``dry_run``, delete nothing, and return the bounds that the trim would give.

        Raises:
            ValueError: The offset is past the end.
        """


class Blind(Protocol):
    """Append without exactly once, if it is not requested or not available."""

    def append_blind(self, partition: int, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:
        """Append a chunk at the current end, without a plan, a claim or a ledger entry, and without fencing.

        Args:
            layout: The layout that the caller knows.
            guarantee: `IDEMPOTENT` or `AT_LEAST_ONCE`. A log may give a stronger guarantee.

        Returns:
            `Appended` if each record was acknowledged; records of others may be between them. `LayoutChanged` if the
                log has another layout; then nothing was appended. `Unknown` if some of the chunk may be in the log.

        Raises:
            LogNotSharedError: This is another log.
            NotStoredError: The rows were rejected, and a retry would not append them either.
            StorageError, RecordTooLargeError, ChunkDamagedError, FormatError: As for `Log.append`.
            StoreUnsafeError: As for `Log.claim`.
        """


class Expandable(Protocol):
    """The steps of an expansion, which `spark_cas.log.expanding` calls in order. Each step may be repeated.

    Each step may raise LogNotFoundError or StorageError.
    """

    def layouts(self, known_epoch: int | None = None) -> Layouts:
        """Return the current layout and the recorded expansions of the log.

        If another tool can add partitions, they are not recorded. For a caller that passes the layout epoch it knew,
        they are returned as an expansion whose thresholds are the current end offsets, open transactions included.
        The same applies to such a caller without permission to read the records; any other caller without it gets an
        error.
        """

    def begin_expansion(self, layout: Layout, partitions: int) -> Intent:
        """Record that a log with this layout gets more partitions, and return the first recorded intent.

        No claim is locked until that expansion is finished.
        """

    def end_partition(self, partition: int, intent: Intent) -> int:
        """Prevent every claim from before the intent from appending to a partition, and return the end offset.

        All appends of such claims are below the returned offset. Later ones are rejected.

        After the expansion is finished, the call changes no threshold and its result is meaningless. If the backend
        fences, it may then fence a writer of the new layout, whose task is retried.
        """

    def finish_expansion(self, expansion: Expansion) -> None:
        """Record an expansion permanently, unless it is recorded.

        The log then has the new layout and its partitions.
        """


class Registry(Protocol):
    """The registry entries of jobs. The first writer of an entry wins.

    Drivers write them, and keep them until a forget.

    Tasks write only ``cancelled`` entries, which are removed when the run ends.
    """

    def entry(self, kind: EntryKind, job: str) -> str | None:
        """Return the entry of a job, group or run, None if there is none. Raises FormatError, StorageError."""

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        """Record an entry of a job, as one line of JSON, unless it exists. Return the recorded entry.

        A log whose registry does not exist yet records no ``cancelled`` entry. Raises FormatError, StorageError.
        """

    def remove_cancelled(self, run: str) -> None:
        """Remove the ``cancelled`` entry of a run, if there is one. Raises StorageError."""

    def jobs(self) -> tuple[str, ...]:
        """Return the names of all jobs that have a plan, sorted. Raises StorageError."""

    def forget(self, plan: Plan) -> None:
        """Remove the records of a job with this plan: its progress, its completion and, last, the plan itself.

        If the call is interrupted, repeat it: the plan stays until everything else is removed.
        `spark_cas.log.jobs` decides whether the removal is safe. Writers without a claim on a partition are
        fenced first, as an expansion would do.
        """


class LockTable(Protocol):
    """The storage of the load lock of a log. `spark_cas.log.load.locking` decides which load gets it."""

    def load_locks(self) -> LoadLocks:
        """Return the current locks, empty if there were never any. Raises FormatError, StorageError."""

    def put_load_locks(self, load_locks: LoadLocks) -> bool:
        """Replace the locks that have the preceding number, in one atomic step.

        The result is False if these locks may not be recorded: read the locks and retry.
        """
