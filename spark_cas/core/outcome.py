"""The possible outcomes of an append, as a closed union of values, their errors, and totals over appends (KIP-192).

Each outcome except `Appended` and `Unknown` is a definite rejection: no row of the attempt is or becomes visible. A
failure counts as definite only if it is proven. Any other failure is `Unknown`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard, assert_never

import pyarrow as pa

from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    FencedError,
    Fields,
    LayoutChangedError,
    ProgressLostError,
    StorageError,
    TruncatedError,
    UnknownOutcomeError,
)
from spark_cas.core.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Appended:
    """The chunk is committed at ``range``; the next append expects ``range.end_offset``."""

    range: OffsetRange
    count: int
    """The number of appended records. On a log with gaps ``len(range)`` may be larger."""
    timestamp_ms: int | None
    """The time that the log assigned to records without one, or to all; None if it assigned none."""
    start_offset: int
    """The oldest retained offset of the partition (KIP-192: distinguishes retention from data loss)."""
    has_offset: bool
    """Whether the log's response contained the offset (KIP-192). If not, the writer proved it from the end
    offsets."""
    resolved: bool
    """Whether the response was lost, and the log proved that the chunk is stored."""
    attempts: int = 1
    """The number of append attempts, including retries."""
    aborted_rows: int = 0
    """Rows of earlier attempts that were aborted. Readers of committed records never see them."""

    @property
    def has_timestamp(self) -> bool:
        """Whether the log assigned a time to the records (KIP-192)."""
        return self.timestamp_ms is not None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another writer's record is at or after the expected offset. Bootstrap again from the expected offset."""

    expected: int
    actual: int
    """The end offset of the partition, which the next attempt must expect."""
    start_offset: int
    """The oldest retained offset. If it is above ``expected``, the records between the two were trimmed and cannot be
    read."""


@dataclass(frozen=True, slots=True)
class RowConflict:
    """The expected offset of a row does not match its actual offset. Read the new records and renumber the rows."""

    row: int
    """The first such row, counted from 0 in the job's rows of the partition."""
    expected: int
    actual: int
    """The offset that the row would get."""
    truncated: bool
    """Whether the expected offset is after the end, and no earlier row proves that the log lost no records."""


@dataclass(frozen=True, slots=True)
class KeyConflict:
    """The expected offset of a row's key does not match. Read the key again from the expected offset."""

    row: int
    key: str
    """The key as readable text; long keys are cut."""
    expected: int
    actual: int | None
    """The offset of the newest record of the key; None if no record was found but one may have been removed."""
    end_offset: int
    """The offset up to which the log was checked."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log is shorter than the writer has seen: acknowledged records are lost. Stop."""

    expected: int
    actual: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A newer run of the job, or another job that expects an offset, has claimed the partition.

    Never claim in a loop.
    """

    by: str | None
    """The task that claimed it; None if the backend cannot determine it."""


@dataclass(frozen=True, slots=True)
class ProgressLost:
    """The job has a plan but no ledger entry, and no expected offset can decide. A person must check the log."""

    job: str


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """The partition count changed (KIP-253). Plan again. Both values are layout epochs."""

    planned: int
    actual: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The response was lost, and the outcome is unresolved. Claim again and read the ledger first."""

    cause: str


Refusal = Conflict | RowConflict | KeyConflict | Truncated | Fenced | ProgressLost | LayoutChanged
"""A definite rejection: no row of the attempt is or becomes visible."""

Outcome = Appended | Refusal | Unknown


def is_lost(refusal: Refusal | None) -> TypeGuard[Truncated | RowConflict]:
    """Return whether a rejection reports data loss, which a backend confirms with a second read."""
    return isinstance(refusal, Truncated) or (isinstance(refusal, RowConflict) and refusal.truncated)


@dataclass(frozen=True, slots=True)
class Appends:
    """Totals of `Appended` over chunks with records. All fields are None if there was none, or if it is not known.

    The totals may differ between attempts of a task. The rows of a job in a partition, and their offsets, are in its
    `Progress`.
    """

    attempts: int | None = None
    """The number of append attempts. A number greater than that of the chunks means that there were retries."""
    aborted_rows: int | None = None
    """The number of rows that were sent and aborted, as far as known."""
    timestamp_ms: int | None = None
    """The time that the log assigned to records of the newest chunk with such a time; None if it assigned none."""
    has_offset: bool | None = None
    start_offset: int | None = None
    """The oldest retained offset at the newest append."""

    @property
    def has_timestamp(self) -> bool | None:
        return None if self.attempts is None else self.timestamp_ms is not None

    def and_then(self, appended: Appended) -> "Appends":
        """Return the totals with one more append. An append without records, which closes a job, changes nothing."""
        if appended.count == 0:
            return self
        return Appends(
            attempts=(self.attempts or 0) + appended.attempts,
            aborted_rows=(self.aborted_rows or 0) + appended.aborted_rows,
            timestamp_ms=self.timestamp_ms if appended.timestamp_ms is None else appended.timestamp_ms,
            has_offset=self.has_offset is not False and appended.has_offset,
            start_offset=appended.start_offset,
        )


NO_TOTALS = Appends()


@dataclass(frozen=True, slots=True)
class Tally:
    """The chunks that one attempt of a task appended, in all partitions. Unlike `Appends`, no log stores it."""

    bytes: int = 0
    """The size of the rows in memory, before compression."""
    chunks: int = 0
    retries: int = 0
    """The number of append attempts in addition to one for each chunk."""

    def and_then(self, appended: Appended, records: pa.Table) -> "Tally":
        """Return the tally with one more chunk. One without rows, which closes a job, changes nothing."""
        if appended.count == 0:
            return self
        return Tally(self.bytes + records.nbytes, self.chunks + 1, self.retries + appended.attempts - 1)

    def restarted(self) -> "Tally":
        """Return the tally at the start of another transaction, with the chunks of the aborted one as retries."""
        return Tally(retries=self.retries + self.chunks)


AFTER_EXPANSION = (
    "Run the same load again, and give spark_cas.route the options of the write with its job. It removes the rows "
    "that are in the log, and assigns the others to the present partitions. This is not possible for a stream, for "
    "conditions on rows or keys, on Spark Connect, or if another tool added the partitions. Then read the log, and "
    "write the missing rows under another job name."
)
"""The fix for a job whose log was expanded after its plan."""


def raise_for_outcome(outcome: Outcome, partition: int) -> Appended:
    """Return an `Appended` unchanged; raise the error of any other outcome."""
    if isinstance(outcome, Appended):
        return outcome
    raise error_of(outcome, partition)


def error_of(outcome: Refusal | Unknown, partition: int) -> ConditionalLogError:  # noqa: PLR0911 - one for each
    """Return the error of a rejected or unknown append: the cause and the fix."""
    match outcome:
        case Conflict(expected, actual, start_offset):
            trimmed = f" Offsets {expected} to {start_offset - 1} were trimmed." if expected < start_offset else ""
            return ConflictError(
                f"partition {partition}: expected offset {expected} to be the end, but the log ends at "
                f"{actual}: another writer appended.{trimmed} Nothing of this chunk was appended. Read the "
                f"new records from offset {max(expected, start_offset)} on, then write with expected offset "
                f"{actual}.",
                partition=partition,
                expected_offset=expected,
                actual_offset=actual,
                next_offsets={partition: actual},
            )
        case RowConflict():
            return _row_error(outcome, partition)
        case KeyConflict():
            return _key_error(outcome, partition)
        case Truncated(expected, actual):
            return TruncatedError(
                f"partition {partition}: expected offset {expected}, but the log ends at {actual}: the log "
                f"lost records that the writer read. Nothing of this chunk is in the log. Find the cause before you "
                f"write again.",
                partition=partition,
                expected_offset=expected,
                actual_offset=actual,
            )
        case Fenced(by):
            writer = f" ({by})" if by else ""
            return FencedError(
                f"partition {partition}: a newer run of the job, or another job that expects an offset, has claimed "
                f"the partition{writer}. Nothing of this chunk was appended. Wait until the other run ends, "
                f"then run the same job again.",
                partition=partition,
            )
        case ProgressLost(job):
            return ProgressLostError(
                f"partition {partition}: job {job!r} began, but its recorded progress is lost, and without "
                f"expected offsets its rows cannot be found. Nothing of this chunk was appended. Compare the log "
                f"with the input, then load the missing rows under a new job name.",
                partition=partition,
                job=job,
            )
        case LayoutChanged(planned, actual):
            return LayoutChangedError(
                f"partition {partition}: the rows were planned for layout epoch {planned}, and an expansion "
                f"changes the log to epoch {actual}. Nothing of this chunk was appended. Visible rows of the job "
                f"stay. {AFTER_EXPANSION}",
                partition=partition,
            )
        case Unknown(cause):
            return UnknownOutcomeError(
                f"partition {partition}: the commit status of the last chunk is unknown: {cause}. "
                f"Run the same job again. It reads the ledger before it writes, so no row is appended twice.",
                partition=partition,
            )
    assert_never(outcome)


def mismatch_error(
    job: str, mismatches: Mapping[int, Conflict | Truncated], next_offsets: Mapping[int, int | None], rows_in_log: str
) -> ConditionalLogError:
    """Return one error for all partitions whose end offset does not match.

    ``rows_in_log`` is a sentence that reports the rows of the job in the log.
    """
    lost = {partition: each for partition, each in mismatches.items() if isinstance(each, Truncated)}
    if lost:
        each_lost = "; ".join(
            f"partition {partition}: expected offset {each.expected}, but the log ends at {each.actual}"
            for partition, each in sorted(lost.items())
        )
        return TruncatedError(
            f"{each_lost}: the log lost records that the writer read. {rows_in_log} Find the cause before you write "
            f"again.",
            **_fields(job, lost),
        )
    each_conflict = "; ".join(
        f"partition {partition}: expected offset {each.expected} to be the end, but the log ends at {each.actual}"
        f"{_trimmed(each)}"
        for partition, each in sorted(mismatches.items())
        if isinstance(each, Conflict)
    )
    return ConflictError(
        f"{each_conflict}: another writer appended. {rows_in_log} Read the new records, then run the same job again "
        f"with the expected offsets in next_offsets.",
        **_fields(job, mismatches, next_offsets),
    )


def rows_in_log_text(job: str, rows: int | None) -> str:
    """Return a sentence that reports the rows in the log of a failed job. Their number is None if it is not known."""
    if rows is None:
        return f"The number of rows of job {job!r} in the log is unknown. Another job name would append them again."
    if rows == 0:
        return f"No row of job {job!r} is in the log."
    return f"{rows} rows of job {job!r} are in the log and stay. Another job name would append them again."


def not_appended(partition: int, cause: str) -> StorageError:
    """Return the error for a chunk that is not and never becomes visible, although no condition failed."""
    return StorageError(
        f"partition {partition}: nothing of this chunk is in the log: {cause}. Run the same job again. It resumes "
        f"after its rows in the partition.",
        partition=partition,
    )


def _fields(
    job: str, mismatches: Mapping[int, Conflict | Truncated], next_offsets: Mapping[int, int | None] | None = None
) -> Fields:
    """Return the fields of an error. The partition and its offsets are among them if only one does not match."""
    fields: Fields = {"job": job, "next_offsets": next_offsets}
    if len(mismatches) == 1:
        ((partition, each),) = mismatches.items()
        fields |= {"partition": partition, "expected_offset": each.expected, "actual_offset": each.actual}
    return fields


def _trimmed(conflict: Conflict) -> str:
    if conflict.expected >= conflict.start_offset:
        return ""
    return f" (offsets {conflict.expected} to {conflict.start_offset - 1} were trimmed)"


def _row_error(conflict: RowConflict, partition: int) -> ConditionalLogError:
    cause = "another writer appended, or the row's number is too low"
    if conflict.expected > conflict.actual:
        lost = "the log lost records that the writer read, or " if conflict.truncated else ""
        cause = f"{lost}the row's number is too high"
    kind = TruncatedError if conflict.truncated else ConflictError
    return kind(
        f"partition {partition}: row {conflict.row} of the job expects offset {conflict.expected}, but would get "
        f"{conflict.actual}: {cause}. Nothing of its chunk was appended. Read the new records, number the rows after "
        f"them in the same order, then run the same job again.",
        partition=partition,
        row=conflict.row,
        expected_offset=conflict.expected,
        actual_offset=conflict.actual,
    )


def _key_error(conflict: KeyConflict, partition: int) -> ConditionalLogError:
    cause = (
        "this cannot be proven: retention or compaction may have removed records, or this user may not read the "
        "topic's settings (ACL DescribeConfigs)"
    )
    if conflict.actual is not None:
        cause = (
            f"it has one at {conflict.actual}: another writer changed the key, or this job did and its progress is "
            f"lost"
        )
    return ConflictError(
        f"partition {partition}: row {conflict.row} of the job expects that key {conflict.key} has no record from "
        f"offset {conflict.expected} on, but {cause}. Nothing of its chunk was appended. Read the keys again up to "
        f"offset {conflict.end_offset}, expect this offset for rows that are still right, and run the same job "
        f"again.",
        partition=partition,
        row=conflict.row,
        expected_offset=conflict.expected,
        actual_offset=conflict.actual,
    )
