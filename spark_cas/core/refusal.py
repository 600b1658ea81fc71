"""Convert the outcome of an append to an error with a message for the user."""

import json
import re
from collections.abc import Mapping
from typing import assert_never

from spark_cas.core.appended_rows import without_sentence
from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    FencedError,
    LayoutChangedError,
    ProgressLostError,
    StorageError,
    TruncatedError,
    UnknownOutcomeError,
)
from spark_cas.core.outcome import (
    Appended,
    Conflict,
    Fenced,
    KeyConflict,
    LayoutChanged,
    Outcome,
    ProgressLost,
    Refusal,
    RowConflict,
    Truncated,
    Unknown,
)

AFTER_EXPANSION = (
    "Run a load again as it was, and give spark_cas.route the options of the write with its job: it takes out the "
    "rows that are in the log and places the rest for the partitions of now. It cannot do that for a stream, a load "
    "with conditions for rows or keys, on Spark Connect, and where another tool added partitions: then read the log, "
    "and write what it does not hold yet under another job name."
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
            trimmed = (
                f" Offsets {expected} to {start_offset - 1} were trimmed and cannot be read any more."
                if expected < start_offset
                else ""
            )
            return ConflictError(
                f"partition {partition}: expected offset {expected} to be the end, but the log ends at "
                f"{actual}: another writer appended.{trimmed} Nothing of this chunk was appended. Read what "
                f"is new from offset {max(expected, start_offset)}, then write with expected offsets "
                f'{{"{partition}": {actual}}}.'
            )
        case RowConflict():
            return _row_error(outcome, partition)
        case KeyConflict():
            return _key_error(outcome, partition)
        case Truncated(expected, actual):
            return TruncatedError(
                f"partition {partition}: expected offset {expected}, but the log ends at {actual}: records "
                f"that the writer has seen are gone. Nothing of this chunk is in the log. Find out what was lost "
                f"before you write again."
            )
        case Fenced(by):
            who = f" ({by})" if by else ""
            return FencedError(
                f"partition {partition}: a newer writer of the same job{who} is at work. Nothing of this "
                f"chunk was appended. Let the other one finish, or run the same job again later."
            )
        case ProgressLost(job):
            return ProgressLostError(
                f"partition {partition}: job {job!r} was begun, but the record of how far it came is gone, "
                f"and without expected offsets nothing else can tell. Nothing of this chunk was appended. Compare "
                f"the log with the input, then load the rest under a new job name."
            )
        case LayoutChanged(planned, actual):
            return LayoutChangedError(
                f"partition {partition}: the rows were planned for layout epoch {planned}, and the log has, or "
                f"is being given, epoch {actual}: partitions are added. Nothing of this chunk was appended, what is "
                f"visible of the job stays. {AFTER_EXPANSION}"
            )
        case Unknown(cause):
            return UnknownOutcomeError(
                f"partition {partition}: it is not known for certain what became of the last chunk: {cause}. "
                f"Run the same job again: it reads the ledger before it writes, so no row is appended twice."
            )
    assert_never(outcome)


def mismatch_error(
    found: Mapping[int, Conflict | Truncated], onward: Mapping[int, int | None], told: str
) -> ConditionalLogError:
    """Return one error for all partitions whose end offset does not match.

    Args:
        found: The conflict of each such partition.
        onward: The expected offsets to resume with, by partition.
        told: A sentence that reports the rows of the job in the log.
    """
    lost = {partition: each for partition, each in found.items() if isinstance(each, Truncated)}
    if lost:
        each_lost = "; ".join(
            f"partition {partition}: expected offset {each.expected}, but the log ends at {each.actual}"
            for partition, each in sorted(lost.items())
        )
        return TruncatedError(
            f"{each_lost}: records that the writer has seen are gone. {told} Find out what was lost before you write "
            f"again."
        )
    each_found = "; ".join(
        f"partition {partition}: expected offset {each.expected} to be the end, but the log ends at {each.actual}"
        f"{_trimmed(each)}"
        for partition, each in sorted(found.items())
        if isinstance(each, Conflict)
    )
    return ConflictError(
        f"{each_found}: another writer appended. {told} Read what is new there, then run the same job again with "
        f"expected offsets {json.dumps(onward)}."
    )


def offsets_to_go_on(message: str) -> str | None:
    """Return the offsets to resume with from the text of a `mismatch_error`, as JSON."""
    found = re.search(r"expected offsets (\{[^{}]*\})\.$", without_sentence(message))
    return found[1] if found else None


def refused_at(message: str) -> int | None:
    """Return the partition of a conflict about its end offset, from the text of the error; None for any other text.

    Conflicts of rows and keys do not match, because no expected offset of a partition resolves them.
    """
    found = re.match(r"partition (\d+): expected offset \d+ to be the end", message)
    return int(found[1]) if found else None


def told_rows(job: str, rows: int | None) -> str:
    """Return a sentence that reports the rows in the log of a failed job.

    Args:
        job: The job name.
        rows: The number of its rows in the log; None if it is not known.
    """
    if rows is None:
        return f"How many rows of job {job!r} are in the log is not known now; another job name appends them again."
    if rows == 0:
        return f"No row of job {job!r} is in the log."
    return f"{rows} rows of job {job!r} are in the log and stay; another job name appends them again."


def not_appended(partition: int, cause: str) -> StorageError:
    """Return the error for a chunk that is not and never becomes visible, although no condition failed."""
    return StorageError(
        f"partition {partition}: nothing of this chunk is in the log: {cause}. Run the same job again: it goes on "
        f"behind what the partition holds of it."
    )


def _trimmed(found: Conflict) -> str:
    if found.expected >= found.start_offset:
        return ""
    return f" (offsets {found.expected} to {found.start_offset - 1} were trimmed and cannot be read any more)"


def _row_error(found: RowConflict, partition: int) -> ConditionalLogError:
    why = "another writer's record is there, or the row is numbered too low"
    if found.expected > found.actual:
        gone = "records that the writer has seen are gone, or " if found.truncated else ""
        why = f"{gone}the row is numbered too high"
    kind = TruncatedError if found.truncated else ConflictError
    return kind(
        f"partition {partition}: row {found.row} of the job there expects offset {found.expected}, but would get "
        f"{found.actual}: {why}. Nothing of its chunk was appended. Read what is new, number the rows from there on "
        f"in the same order, then run the same job again."
    )


def _key_error(found: KeyConflict, partition: int) -> ConditionalLogError:
    why = (
        "records may have been removed since (by retention, or deletions by compaction, or this user may not see the "
        "topic's settings, which the ACL DescribeConfigs allows), so nothing shows it"
    )
    if found.actual is not None:
        why = f"it has one at {found.actual}: another writer changed it, or this job did and the ledger forgot it"
    return ConflictError(
        f"partition {partition}: row {found.row} of the job there expects that key {found.key} has no record from "
        f"offset {found.expected} on, but {why}. Nothing of its chunk was appended. Read the keys anew, up to offset "
        f"{found.end_offset}, and expect that of rows which are still right; then run the same job again."
    )
