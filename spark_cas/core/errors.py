"""The errors of spark_cas, grouped by what a handler does about them.

::

    ConditionalLogError
    ├── RefusedError            a condition did not hold; nothing of the attempt is visible
    │   ├── ConflictError       bootstrap again from what was expected, then write again
    │   ├── TruncatedError      stop: the log lost records that were seen
    │   ├── FencedError         stop: a newer writer of the same job is at work
    │   ├── ProgressLostError   a person decides
    │   ├── LayoutChangedError  plan and route again
    │   ├── GrantedError        run the same job again once the load that is at work is complete
    │   ├── NotLeaderError      ask the node that leads the shard
    │   └── VersionMismatchError  read the key again, then write with the version of now
    ├── UnknownOutcomeError     run the same job again: it looks before it writes
    ├── MayBeStaleError         read again, or take what may be stale
    ├── InputError              (also a ValueError) nothing was appended; fix the input or the call
    │   ├── OptionError
    │   ├── SchemaError
    │   ├── ClaimError
    │   ├── RecordTooLargeError
    │   ├── NotRoutedError
    │   ├── InputChangedError
    │   ├── JobMismatchError
    │   ├── CheckpointMismatchError
    │   ├── BatchTooLargeError
    │   ├── SparkSetupError
    │   └── UnreadableInputError
    └── LogError                the log or its store cannot be used as it is
        ├── LogNotFoundError
        ├── LogNotSharedError
        ├── TrimmedError
        ├── FormatError
        ├── StoreUnsafeError
        ├── ChunkDamagedError
        ├── UnreadableRecordError
        └── StorageError
            ├── NotTakenError
            ├── TransactionEndedError
            └── UndecidedError

Spark carries only the text of an error to the user, so every text begins with the kind in brackets,
and `error_from_text` makes the error again. Kinds are stable: they are added to, never renamed.
"""

import re
from enum import StrEnum
from typing import ClassVar

from spark_cas.core.appended_rows import rows_in


class ErrorKind(StrEnum):
    """The stable token at the start of each error's text."""

    CONFLICT = "CONFLICT"
    TRUNCATED = "TRUNCATED"
    FENCED = "FENCED"
    PROGRESS_LOST = "PROGRESS_LOST"
    LAYOUT_CHANGED = "LAYOUT_CHANGED"
    UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"
    OPTION = "OPTION"
    SCHEMA = "SCHEMA"
    CLAIM = "CLAIM"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    NOT_ROUTED = "NOT_ROUTED"
    INPUT_CHANGED = "INPUT_CHANGED"
    JOB_MISMATCH = "JOB_MISMATCH"
    LOG_NOT_FOUND = "LOG_NOT_FOUND"
    LOG_NOT_SHARED = "LOG_NOT_SHARED"
    FORMAT = "FORMAT"
    STORE_UNSAFE = "STORE_UNSAFE"
    CHUNK_DAMAGED = "CHUNK_DAMAGED"
    STORAGE = "STORAGE"
    TRIMMED = "TRIMMED"
    CHECKPOINT_MISMATCH = "CHECKPOINT_MISMATCH"
    BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
    SPARK_SETUP = "SPARK_SETUP"
    INPUT_UNREADABLE = "INPUT_UNREADABLE"
    GRANTED = "GRANTED"
    NOT_LEADER = "NOT_LEADER"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    MAY_BE_STALE = "MAY_BE_STALE"
    UNREADABLE_RECORD = "UNREADABLE_RECORD"


class ConditionalLogError(Exception):
    """Any error of spark_cas. ``message`` says what was expected, what was found and what to do."""

    kind: ClassVar[ErrorKind]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"[{self.kind}] {self.message}"

    @property
    def appended_rows(self) -> dict[int, int] | None:
        """The rows that a failed write appended, by partition; None if the message does not report them."""
        return rows_in(self.message)


class RefusedError(ConditionalLogError):
    """A condition did not hold: nothing of the attempt is visible."""


class ConflictError(RefusedError):
    """Somebody else's record is at or after the expected offset."""

    kind = ErrorKind.CONFLICT


class TruncatedError(RefusedError):
    """The log is shorter than what the writer has seen."""

    kind = ErrorKind.TRUNCATED


class FencedError(RefusedError):
    """A newer writer of the same job claimed the partition."""

    kind = ErrorKind.FENCED


class ProgressLostError(RefusedError):
    """The job was begun, its progress is gone, and no claim can decide."""

    kind = ErrorKind.PROGRESS_LOST


class LayoutChangedError(RefusedError):
    """The log has another layout epoch than the plan."""

    kind = ErrorKind.LAYOUT_CHANGED


class GrantedError(RefusedError):
    """Another load is at work on the same partitions: nothing was planned."""

    kind = ErrorKind.GRANTED


class NotLeaderError(RefusedError):
    """Another node leads the shard of a key-value store, or none does."""

    kind = ErrorKind.NOT_LEADER

    def __init__(self, message: str, leader: str | None = None) -> None:
        super().__init__(message)
        self.leader = leader
        """The address of the node to ask, as far as is known: a hint, which may be wrong."""


class VersionMismatchError(RefusedError):
    """A key of a key-value store has another version than a write expected."""

    kind = ErrorKind.VERSION_MISMATCH

    def __init__(self, message: str, key: bytes = b"", actual: int | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.actual = actual
        """The version that the key has; None when it is absent."""


class UnknownOutcomeError(ConditionalLogError):
    """A reply was lost and could not be resolved in time: the chunk may or may not be in the log."""

    kind = ErrorKind.UNKNOWN_OUTCOME


class MayBeStaleError(ConditionalLogError):
    """It could not be proven that what a read found is the newest."""

    kind = ErrorKind.MAY_BE_STALE


class InputError(ConditionalLogError, ValueError):
    """The input or the call is wrong; nothing was appended because of it."""


class OptionError(InputError):
    """An option is unknown, malformed or missing."""

    kind = ErrorKind.OPTION


class SchemaError(InputError):
    """A column is missing, unknown or of the wrong type."""

    kind = ErrorKind.SCHEMA


class ClaimError(InputError):
    """What a row expects can be no claim: it is no offset, or not above that of the row before."""

    kind = ErrorKind.CLAIM


class RecordTooLargeError(InputError):
    """One record is larger than a chunk may be."""

    kind = ErrorKind.RECORD_TOO_LARGE


class NotRoutedError(InputError):
    """Rows of one log partition are not all in one task, or not in a partition of the log."""

    kind = ErrorKind.NOT_ROUTED


class InputChangedError(InputError):
    """The rows are not those that the job began with."""

    kind = ErrorKind.INPUT_CHANGED


class JobMismatchError(InputError):
    """The job name belongs to a job that was planned in another way."""

    kind = ErrorKind.JOB_MISMATCH


class CheckpointMismatchError(InputError):
    """The checkpoint of a streaming query and the log do not tell of the same batches."""

    kind = ErrorKind.CHECKPOINT_MISMATCH


class BatchTooLargeError(InputError):
    """Rows for one partition that have to be one chunk, of a micro-batch or an atomic load, are more than that."""

    kind = ErrorKind.BATCH_TOO_LARGE


class SparkSetupError(InputError):
    """Spark, as it is set up, cannot run what is asked: its version, or the Python of its workers."""

    kind = ErrorKind.SPARK_SETUP


class UnreadableInputError(InputError):
    """An input file has content that its format, its schema or the read options do not allow."""

    kind = ErrorKind.INPUT_UNREADABLE


class LogError(ConditionalLogError):
    """The log or its store cannot be used as it is."""


class LogNotFoundError(LogError):
    """There is no log under the address."""

    kind = ErrorKind.LOG_NOT_FOUND


class LogNotSharedError(LogError):
    """A worker sees another log, or none, under the address that the driver planned with."""

    kind = ErrorKind.LOG_NOT_SHARED


class TrimmedError(LogError):
    """Records that a read was planned for were trimmed meanwhile."""

    kind = ErrorKind.TRIMMED


class FormatError(LogError):
    """What is there is no log, or one of a newer format version."""

    kind = ErrorKind.FORMAT


class StoreUnsafeError(LogError):
    """The store does not honour put-if-absent, on which everything rests."""

    kind = ErrorKind.STORE_UNSAFE


class ChunkDamagedError(LogError):
    """Bytes of a chunk are torn, flipped or missing."""

    kind = ErrorKind.CHUNK_DAMAGED


class UnreadableRecordError(LogError):
    """A record of another producer holds a value that a requested column cannot hold.

    ``partition`` and ``offset`` are -1 in an error that came from another process, whose text names them.
    """

    kind = ErrorKind.UNREADABLE_RECORD

    def __init__(self, message: str, partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class StorageError(LogError):
    """The store failed: out of space, not permitted, not reachable."""

    kind = ErrorKind.STORAGE


class NotTakenError(StorageError):
    """The store will not take these rows, however often that is tried; it crosses a process as `StorageError`."""


class TransactionEndedError(StorageError):
    """What a load appended as a whole is gone, and may be appended anew; it crosses a process as `StorageError`."""


class UndecidedError(StorageError):
    """What is looked for depends on somebody's open transaction; it crosses a process as `StorageError`."""


def _leaves(base: type[ConditionalLogError]) -> dict[ErrorKind, type[ConditionalLogError]]:
    found = {base.kind: base} if "kind" in vars(base) else {}
    for each in base.__subclasses__():
        found |= _leaves(each)
    return found


ERRORS_BY_KIND = _leaves(ConditionalLogError)


_STAGE_FAILED = (
    r"Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^()\n]*\): "
)
_FOREACH_BATCH_FAILED = (
    r"\[FOREACH_BATCH_USER_FUNCTION_ERROR\] An error occurred in the user provided function in foreach batch sink\. "
    r"Reason: (?:An exception was raised by the Python Proxy\. Return Message: )?"
)
_SPARK_PREFIXES = (
    # Py4J, and the class of an exception of Spark or PySpark. Spark Connect puts the class into parentheses.
    r"An error occurred while calling [^\s:]+\.\n: ",
    r"(?:org\.apache\.spark|pyspark)\.[\w.$]+: ",
    r"\(org\.apache\.spark\.[\w.$]+\) ",
    _STAGE_FAILED,
    # Python data sources, streaming queries and Python workers.
    r"\[PYTHON_DATA_SOURCE_ERROR\] Failed [^:\n\[\]]+: ",
    r"\[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR\] Failed [^:\n\[\]]+: ",
    r"\[STREAM_FAILED\] Query [^\[\n]*\[id = [\w-]+, runId = [\w-]+\] terminated with exception: ",
    _FOREACH_BATCH_FAILED,
    # Spark Connect.
    r"\s*An exception was thrown from the Python worker\. Please see the stack trace below\.\s*",
    r"(?:\[PYTHON_EXCEPTION\] )?An exception was thrown from the Python worker:\s",
    # The frames of a traceback are indented. The exception follows them.
    r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+",
)
_OWN = rf"\[(?P<kind>{'|'.join(ErrorKind)})\] (?P<message>[^\n]*)"
_AT_START = re.compile(_OWN)
_IN_PYTHON = re.compile(rf"(?:{'|'.join(_SPARK_PREFIXES)})*?Traceback \(most recent call last\):\n")
_AFTER_PREFIXES = re.compile(rf"(?:{'|'.join(_SPARK_PREFIXES)})*spark_cas(?:\.\w+)+: {_OWN}")


def error_from_text(text: str) -> ConditionalLogError | None:
    """Return the error that the text of an exception carries, None if it carries none.

    The text is that of an error of this package, or of an exception in which Spark carries one. Then only known
    prefixes of Spark and the class of the error come before it. So a code in brackets in other data, such as a row of
    the input in a message of Spark, is no error.
    """
    found = _AT_START.match(text) or _AFTER_PREFIXES.match(text)
    return ERRORS_BY_KIND[ErrorKind(found["kind"])](found["message"]) if found else None


def has_traceback(text: str) -> bool:
    """Whether the text of an exception of Spark is the traceback of a Python worker, and not only contains one."""
    return _IN_PYTHON.match(text) is not None
