"""What a backend has to have: six data methods, and beside them administration, the registry and grants.

`spark_cas.log.backend` adds what follows from that for every one of them.

Outcomes that a condition decides are values (`spark_cas.core.outcome`); what is raised here is a
`ConditionalLogError`: the log is not there, its store failed, or bytes are damaged.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.grants import Grants
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Outcome, Refusal
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner
from spark_cas.core.plan import Layout, Plan, Progress
from spark_cas.core.records import RECORDS

EntryKind = Literal["plan", "completion", "outcome", "input", "cancelled"]
"""The kinds of registry entries: plan and completion of a job by its name, the outcome of a commit group by the name
of the group (`spark_cas.core.group`), the input list of a bulk load by `spark_cas.core.plan.input_entry`, and the
rejection that cancelled a run by the name of the run (`spark_cas.log.load.cancelling`)."""


class Log(Protocol):
    """A log on one backend: the six data methods."""

    def layout(self) -> Layout:
        """The newest layout.

        Raises LogNotFoundError, FormatError, StorageError.
        """
        ...

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        """Become the partition's writer for the job of ``plan`` and learn how far that job came.

        Where the backend can fence, every earlier writer is fenced from then on, unless it rested and nothing was
        appended meanwhile (decision 0019); elsewhere a claim is advice and safety rests on `append` alone. Refused
        with LayoutChanged when the plan's layout epoch is not the newest or an expansion is pending, and with
        ProgressLost when rows of the job may have been trimmed unseen. What other tools than this package did to the
        log a moment ago may be left for the append of rows to find.

        Raises LogNotSharedError when this is not the log that the plan was made for; StoreUnsafeError when the
        store cannot keep the promise of `append`; ChunkDamagedError, FormatError, StorageError.
        """
        ...

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk whole, once, at the claim's expected offset, or leave nothing of it visible.

        Where rows have claims of their own, each must hold for the offset that it gets (`check_rows`).
        The ledger entry of the job is written in the same atomic step. A chunk of a plan with a group is seen by
        that group's writers alone until the group is decided; who would come behind it waits for that, and aborts
        the group once its time is over. Without records, and not completing the job, it only holds the place of its
        group. One that changes nothing, not even the ledger, shows that the claim is the newest, where claims are
        fenced: `Fenced` where that is not sure. One attempt: only transport failures are tried again, with the same
        bytes, until a deadline ends them in Unknown. Asked for ever with one claim, at most one append succeeds.
        `Fenced` means else that a chunk of the same job, which the claim does not know, is in the log.

        Raises UndecidedError where a group ahead is not decided in time; StorageError when the store definitely
        refused for its own reasons (full, not permitted),
        RecordTooLargeError when the chunk is larger than it takes, LogNotSharedError when another log has the
        address now, which a store is asked for by `claim` alone; ChunkDamagedError and FormatError when what is there
        cannot be appended to.
        """
        ...

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the committed records of a range in offset order, as (offset of the first, records).

        The records of one yield hold these columns of `RECORDS` and lie at consecutive offsets; gaps fall
        between yields. Without columns they still tell how many there are.

        Raises ValueError when the range is not within the bounds; ChunkDamagedError before any record of
        a damaged chunk is yielded, TrimmedError likewise where the log was trimmed meanwhile; StorageError;
        UnreadableRecordError for a record whose headers the column cannot hold, if that column is requested.
        """
        ...

    def bounds_of(self, partitions: Sequence[int], *, waiting: bool) -> tuple[Bounds, ...]:
        """What each of some partitions keeps, with as few requests as can be.

        ``waiting``: every append acknowledged before this call lies below its ``end_offset``, and what is committed
        as a whole lies in all of the partitions below that, or in none. Else it is what is
        decided now, and nobody's open transaction is waited for: still nothing below ``end_offset`` is undecided, but
        an append that was acknowledged a moment ago may lie at or behind it. That is for who comes back for the rest.

        Raises UndecidedError where it waits, and that is not decided within the patience; LogNotFoundError,
        ChunkDamagedError, StorageError.
        """
        ...

    def progress_of(
        self, partitions: Sequence[int], job: str, group: str = "", *, proven: bool = False
    ) -> tuple[Progress | None, ...]:
        """A job's ledger entries in some partitions; None where the log holds nothing of it, or no longer.

        What a group holds counts once it is committed, and before that for who names the ``group``. They are what was
        committed before this call unless a broker answers that was deposed and does not know it; with ``proven`` none
        such can answer. It is for whoever decides by them alone which rows of a job are not in the log yet.

        Raises LogNotFoundError, ChunkDamagedError, StorageError.
        """
        ...


class Admin(Protocol):
    """Creating and trimming: what a task that writes rows never needs."""

    def create(self, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Layout:
        """Create the log unless it is there, and return its layout, which another creator may have chosen.

        A backend whose layout records the partitioner records it now, others with the first plan that names one.

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

    def finish_expansion(self, expansion: Expansion) -> None:
        """Record an expansion for ever, unless it is recorded: now the log has the new layout and its partitions."""
        ...


class Registry(Protocol):
    """The entries of jobs: the first writer wins. Drivers write them, and keep them until they forget the job.

    Only a ``cancelled`` entry is written by a task, and removed when its run ends.
    """

    def entry(self, kind: EntryKind, job: str) -> str | None:
        """Return the entry of a job, group or run, None if there is none. Raises FormatError, StorageError."""
        ...

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        """Record one line of JSON of a job unless there is one, and return the first one.

        A log whose registry is not created yet records no ``cancelled`` entry. Raises FormatError, StorageError.
        """
        ...

    def remove_cancelled(self, run: str) -> None:
        """Remove the ``cancelled`` entry of a run, if there is one. Raises StorageError."""
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


class Grantor(Protocol):
    """Where the grants of a log are kept: `spark_cas.log.load.granting` says who gets one."""

    def grants(self) -> Grants:
        """The grants as they are now, none where nobody ever had one. Raises FormatError, StorageError."""
        ...

    def put_grants(self, grants: Grants) -> bool:
        """Record grants in place of those with the number before theirs, unless others were recorded meanwhile.

        One step, however many do this at once. False: look at the grants again, these may be recorded or not. Raises
        StorageError.
        """
        ...
