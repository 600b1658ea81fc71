"""What a backend is: six data methods, and beside them administration and the registry.

Outcomes that a condition decides are values (`spark_cas.core.outcome`); what is raised here is a
`ConditionalLogError`: the log is not there, its store failed, or bytes are damaged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.guarantee import EXACTLY_ONCE, REQUIRED
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Outcome, Refusal
from spark_cas.core.plan import Completion, Layout, Plan, Progress
from spark_cas.core.records import RECORDS


class Log(Protocol):
    """A log on one backend: the six data methods."""

    def layout(self) -> Layout:
        """The newest layout.

        Raises LogNotFoundError, FormatError, StorageError.
        """
        ...

    def bounds(self, partition: int) -> Bounds:
        """What a partition keeps: every append acknowledged before this call lies below ``end_offset``.

        Raises LogNotFoundError, ChunkDamagedError, StorageError.
        """
        ...

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        """Become the partition's writer for the job of ``plan`` and learn how far that job came.

        Where the backend can fence, every earlier writer is fenced from then on, unless it rested and nothing was
        appended meanwhile (decision 0019); elsewhere a claim is advice and safety rests on `append` alone. Refused
        with LayoutChanged when the plan's layout epoch is not the newest or an expansion is pending, and with
        ProgressLost when rows of the job may have been trimmed unseen.

        Raises LogNotSharedError when this is not the log that the plan was made for; StoreUnsafeError when the
        store cannot keep the promise of `append`; ChunkDamagedError, FormatError, StorageError.
        """
        ...

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk whole, once, at the claim's expected offset, or leave nothing of it visible.

        Where rows have claims of their own, each must hold for the offset that it gets (`check_rows`).
        The ledger entry of the job is written in the same atomic step. One attempt: only transport
        failures are tried again, with the same bytes, until a deadline ends them in Unknown. Asked for
        ever with one claim, at most one append succeeds. `Fenced` means that a chunk of the same job,
        which the claim does not know, is in the log.

        Raises StorageError when the store definitely refused for its own reasons (full, not permitted),
        RecordTooLargeError when the chunk is larger than it takes, LogNotSharedError when another log has the
        address now; ChunkDamagedError and FormatError when what is there cannot be appended to.
        """
        ...

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the committed records of a range in offset order, as (offset of the first, records).

        The records of one yield hold these columns of `RECORDS` and lie at consecutive offsets; gaps fall
        between yields. Without columns they still tell how many there are.

        Raises ValueError when the range is not within the bounds; ChunkDamagedError before any record of
        a damaged chunk is yielded, TrimmedError likewise where the log was trimmed meanwhile; StorageError.
        """
        ...

    def progress(self, partition: int, job: str) -> Progress | None:
        """The ledger entry of a job; None when the log holds nothing of it, or no longer.

        Raises ChunkDamagedError, StorageError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a look at a log's settings found that a writer should know before its first row."""

    max_record_bytes: int | None
    """The largest record that the log takes, in bytes of key, value and headers; None where a chunk may be one."""
    notes: tuple[str, ...]
    """What weakens a promise, each in plain words with what to do about it."""
    guarantee: str = EXACTLY_ONCE
    """What a write can have here, of what it asked for."""


class Admin(Protocol):
    """Looking at settings and times, creating and trimming: what a task that writes rows never needs."""

    def preflight(self, *, begun: bool = False, idempotence: str = REQUIRED) -> Preflight:
        """Find out whether this log can be written to from here, before anything is.

        Of a stream that has ``begun``, for each of whose batches this is asked, nothing is tried: it is only looked.
        With ``idempotence`` `REQUESTED` a log that does not give exactly once tells which guarantee it gives, where
        it else raises; with `OFF` it is not looked whether it would. A log that cannot keep one writer from
        overwriting another's rows is refused with each of them.

        Raises what an append would come to later: LogNotFoundError, StoreUnsafeError when the promises of `append`
        cannot be kept, StorageError when the store cannot be reached or refuses the credentials or the right.
        """
        ...

    def bounds_of(self, partitions: Sequence[int], *, waiting: bool) -> tuple[Bounds, ...]:
        """What each of some partitions keeps: `Log.bounds` of all of them, with as few requests as can be.

        Without ``waiting`` it is what is decided now, and nobody's open transaction is waited for. Still nothing
        below ``end_offset`` is undecided, but an append that was acknowledged a moment ago may lie at or behind it:
        for who comes back for the rest.

        Raises LogNotFoundError, ChunkDamagedError, StorageError.
        """
        ...

    def progress_of(self, partitions: Sequence[int], job: str) -> tuple[Progress | None, ...]:
        """A job's ledger entries in some partitions: `Log.progress` of all, with as few requests as can be.

        Raises LogNotFoundError, ChunkDamagedError, StorageError.
        """
        ...

    def offset_since(self, partition: int, timestamp_ms: int) -> int | None:
        """Where a read begins that is to have every record from a time on, in milliseconds since 1970.

        All committed records below it are older, and the first that is not lies there or behind it: an offset that
        holds no record, such as that of Kafka's marker, may have a time too. None when nothing is as new. Times need
        not rise with offsets.

        Raises LogNotFoundError, ChunkDamagedError, StorageError.
        """
        ...

    def tombstones_kept_ms(self) -> int | None:
        """For how long a record without a value, which deletes its key, is kept at least; None: as long as any.

        Whoever has not read on for longer may have missed that a key was deleted, with nothing to show for it. 0
        where the settings may not be seen. Raises LogNotFoundError, StorageError.
        """
        ...

    def create(self, partitions: int) -> Layout:
        """Create the log unless it is there, and return its layout, which another creator may have chosen.

        Raises FormatError when the place holds something else, StoreUnsafeError, StorageError.
        """
        ...

    def trim(self, partition: int, before_offset: int) -> Bounds:
        """Let go of records below an offset, and of none at or above it.

        Where chunks are what is kept, one that the offset lies within stays whole, and so does the newest.

        Raises ValueError when the offset is past the end; StorageError.
        """
        ...


class Blind(Protocol):
    """Appending where exactly once is not asked for, or not available."""

    def append_blind(self, partition: int, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:
        """Append a chunk at whatever the end is: no plan, no claim, no ledger entry, and nobody is fenced.

        ``guarantee`` is `IDEMPOTENT` or `AT_LEAST_ONCE`; a log may keep more of it than that. `Appended` when each
        record was acknowledged: others' may lie among them. LayoutChanged, with nothing of the chunk appended, when
        the log has another layout. Unknown: some of the chunk may be in the log.

        Raises LogNotSharedError when the log is another; as `append` does StorageError, RecordTooLargeError,
        ChunkDamagedError, FormatError, and StoreUnsafeError as `claim` does; NotTakenError for rows that another try
        would not append either.
        """
        ...


class Expandable(Protocol):
    """The steps of an expansion, which `spark_cas.log.expanding` takes in their order. Each may be taken again.

    A LogNotFoundError and a StorageError may end each of them.
    """

    def layouts(self, known_epoch: int | None = None) -> Layouts:
        """How the log came to its partitions, all of it that was recorded.

        Where another tool can add partitions nobody records it: a caller who knows which layout epoch the log had is
        told of that as of an expansion whose thresholds are the ends of now, open transactions included. So is such
        a caller who may not see what was recorded; any other is refused. Raises FormatError.
        """
        ...

    def begin_expansion(self, layout: Layout, partitions: int) -> Intent:
        """Record that a log of this layout is to have more partitions, and return what was first recorded of it.

        From then on no claim is granted until that expansion is finished.
        """
        ...

    def end_partition(self, partition: int, intent: Intent) -> int:
        """Let nobody who has a claim from before the intent append to a partition any more, and return where it ends.

        What lies below that was appended before; what such a writer still sends is refused, whenever it arrives.
        Once the expansion is finished it moves no threshold, and what it returns is of no use. Where writers are
        fenced, it may then fence one of the new layout, whose task is tried again.
        """
        ...

    def add_partitions(self, intent: Intent) -> None:
        """Make the partitions that the log is to have, unless it has them."""
        ...

    def finish_expansion(self, expansion: Expansion) -> None:
        """Record an expansion for ever, unless it is recorded: now the log has the new layout."""
        ...


class Registry(Protocol):
    """Plans and completions: kept until they are forgotten, written by drivers only, the first writer wins."""

    def record_plan(self, plan: Plan) -> Plan:
        """Record a job's plan and return the job's first one, which may be another. Raises StorageError."""
        ...

    def plan(self, job: str) -> Plan | None:
        """The first plan of a job, None when it has none. Raises StorageError."""
        ...

    def record_completion(self, completion: Completion) -> Completion:
        """Record that a job is done and return the first record of it. Raises StorageError."""
        ...

    def completion(self, job: str) -> Completion | None:
        """What a job was completed with, None while it is not. Raises StorageError."""
        ...

    def jobs(self) -> tuple[str, ...]:
        """All jobs that have a plan, sorted. Raises StorageError."""
        ...

    def forget(self, plan: Plan) -> None:
        """Remove what is recorded of a job under this name: its progress, its completion and, last, its plan.

        Interrupted, it may be done again, and the plan stands for as long as anything does. Whether it is safe is
        decided by `spark_cas.log.forgetting`. What a writer without a claim on a partition may still hold there is
        ended first, as an expansion would have had to. Raises StorageError.
        """
        ...


class Backend(Log, Blind, Admin, Expandable, Registry, Protocol):
    """All of a backend. A context manager: leaving it lets go of its clients."""

    topic: str
    """The log's name, as readers see it in the column of that name."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
