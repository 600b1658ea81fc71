"""The errors of spark_cas, grouped by their handling. docs/errors.md has the fix for each kind.

The groups are `RefusedError`, `UnknownOutcomeError`, `InputError` and `LogError`.

Spark passes only the text of an error to the user. Each text is therefore one line ``[KIND] message {fields}``, and
`error_from_text` returns the error. The fields are JSON without spaces, and are missing if there are none. A value
that the message quotes can be neither the kind nor a field. Existing kinds and fields are never renamed.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from enum import StrEnum
from typing import Any, ClassVar, Self, TypedDict, Unpack, cast


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
    BAD_EXPECTED_OFFSET = "BAD_EXPECTED_OFFSET"
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
    ACCESS_DENIED = "ACCESS_DENIED"
    NOT_STORED = "NOT_STORED"
    TRIMMED = "TRIMMED"
    CHECKPOINT_MISMATCH = "CHECKPOINT_MISMATCH"
    BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
    SPARK_SETUP = "SPARK_SETUP"
    INPUT_UNREADABLE = "INPUT_UNREADABLE"
    LOAD_IN_PROGRESS = "LOAD_IN_PROGRESS"
    UNREADABLE_RECORD = "UNREADABLE_RECORD"


class Fields(TypedDict, total=False):
    """The fields of `ConditionalLogError`."""

    partition: int | None
    row: int | None
    offset: int | None
    expected_offset: int | None
    actual_offset: int | None
    job: str | None
    appended_rows: Mapping[Any, Any] | None
    next_offsets: Mapping[Any, Any] | None
    resumable: bool | None


ERRORS_BY_KIND: "dict[ErrorKind, type[ConditionalLogError]]" = {}
"""The class of each kind. Subclasses without a kind of their own are not in it."""


class ConditionalLogError(Exception):
    """Any error of spark_cas. ``message`` has the fix. A field is None if the error does not have it."""

    kind: ClassVar[str]
    """An `ErrorKind`. A program may define errors with kinds of its own, which `error_from_text` does not read."""
    retriable: ClassVar[bool] = False
    """True if the same call may succeed later. False if each retry fails until its cause is fixed."""
    partition: int | None = None
    """The partition of the log."""
    row: int | None = None
    """The number of the row in its partition, among the rows of the job."""
    offset: int | None = None
    """The offset of the record that the error reports."""
    expected_offset: int | None = None
    actual_offset: int | None = None
    """The offset found instead of the expected one: the end of the partition, or the record in the way."""
    job: str | None = None
    appended_rows: Mapping[Any, Any] | None = None
    """The rows that a failed write appended, by partition. For a load of several topics, by topic and partition."""
    next_offsets: Mapping[Any, Any] | None = None
    """The expected offsets to run the same job with, with the same keys."""
    resumable: bool | None = None
    """After added partitions, whether ``route`` and the write, called again with the same job, append the rest."""

    def __init_subclass__(cls, kind: ErrorKind | None = None, *, retriable: bool | None = None) -> None:
        super().__init_subclass__()
        if kind is not None:
            cls.kind = kind
            ERRORS_BY_KIND[kind] = cls
        if retriable is not None:
            cls.retriable = retriable

    def __init__(self, message: str, **fields: Unpack[Fields]) -> None:
        super().__init__(message)
        self.message = message
        vars(self).update(fields)

    @property
    def fields(self) -> Fields:
        """The fields that the error has."""
        each = {name: getattr(self, name) for name in Fields.__annotations__}
        return cast("Fields", {name: value for name, value in each.items() if value is not None})

    def with_message(self, message: str, **fields: Unpack[Fields]) -> Self:
        """Return the same error with another message, and with other values of some fields."""
        error = copy(self)
        error.args, error.message = (message,), message
        vars(error).update(fields)
        return error

    @property
    def line(self) -> str:
        """The kind and the message, without the fields."""
        return f"[{self.kind}] {' '.join(self.message.splitlines())}"

    def __str__(self) -> str:
        text = self.line
        if not self.fields and not text.endswith("}"):
            return text
        return f"{text} {json.dumps(self.fields, separators=(',', ':')).replace(' ', _SPACE)}"


class RefusedError(ConditionalLogError):
    """A condition did not hold: nothing of the attempt is visible."""


class ConflictError(RefusedError, kind=ErrorKind.CONFLICT):
    """A record of another writer is at or after the expected offset."""


class TruncatedError(RefusedError, kind=ErrorKind.TRUNCATED):
    """The log is shorter than before: it lost records."""


class FencedError(RefusedError, kind=ErrorKind.FENCED, retriable=True):
    """A newer run of the job, or another job that expects an offset, has claimed the partition."""


class ProgressLostError(RefusedError, kind=ErrorKind.PROGRESS_LOST):
    """The recorded progress of the job has expired, and no expected offset can decide."""


class LayoutChangedError(RefusedError, kind=ErrorKind.LAYOUT_CHANGED):
    """The log has another layout epoch than the plan."""


class LoadInProgressError(RefusedError, kind=ErrorKind.LOAD_IN_PROGRESS, retriable=True):
    """Another load holds the lock of the same partitions. Nothing was planned."""


class UnknownOutcomeError(ConditionalLogError, kind=ErrorKind.UNKNOWN_OUTCOME, retriable=True):
    """A response was lost: the commit status of the last chunk is unknown."""


class InputError(ConditionalLogError, ValueError):
    """The input or the call is wrong; nothing was appended because of it."""


class OptionError(InputError, kind=ErrorKind.OPTION):
    """An option is unknown, malformed or missing."""


class SchemaError(InputError, kind=ErrorKind.SCHEMA):
    """A column is missing, unknown or of the wrong type, or the log cannot store a value."""


class ExpectedOffsetError(InputError, kind=ErrorKind.BAD_EXPECTED_OFFSET):
    """A row has an impossible expected offset: no offset, or not above that of the previous row."""


class RecordTooLargeError(InputError, kind=ErrorKind.RECORD_TOO_LARGE):
    """A record exceeds the limit of a chunk or of the topic, or an entry of the registry exceeds that of readers."""


class NotRoutedError(InputError, kind=ErrorKind.NOT_ROUTED):
    """Two tasks have rows of one log partition, or rows are for a partition that the log lacks."""


class InputChangedError(InputError, kind=ErrorKind.INPUT_CHANGED):
    """The rows differ from those of the first run of the job."""


class MissingRowsError(InputChangedError):
    """The input ended before rows that the log holds. Either it has changed, or Spark has cut off this attempt."""


class JobMismatchError(InputError, kind=ErrorKind.JOB_MISMATCH):
    """Another kind of write, or another stream, has this job name."""


class CheckpointMismatchError(InputError, kind=ErrorKind.CHECKPOINT_MISMATCH):
    """The batches in the checkpoint of a streaming query and in the log differ."""


class BatchTooLargeError(InputError, kind=ErrorKind.BATCH_TOO_LARGE):
    """Rows that need one chunk, of a micro-batch or an atomic load, exceed its limit."""


class SparkSetupError(InputError, kind=ErrorKind.SPARK_SETUP):
    """pyspark is missing or too old, or Spark's workers run another Python."""


class UnreadableInputError(InputError, kind=ErrorKind.INPUT_UNREADABLE):
    """An input file has content that its format, its schema or the read options do not allow."""


class LogError(ConditionalLogError):
    """The log or its store cannot be used."""


class LogNotFoundError(LogError, kind=ErrorKind.LOG_NOT_FOUND):
    """No log exists at the address."""


class LogNotSharedError(LogError, kind=ErrorKind.LOG_NOT_SHARED):
    """A worker finds another log, or none, at the address that the driver used."""


class TrimmedError(LogError, kind=ErrorKind.TRIMMED):
    """Records of a planned read were trimmed."""


class FormatError(LogError, kind=ErrorKind.FORMAT):
    """The address has no log, or one of a newer format version."""


class StoreUnsafeError(LogError, kind=ErrorKind.STORE_UNSAFE):
    """The store ignores put-if-absent, which every promise depends on."""


class ChunkDamagedError(LogError, kind=ErrorKind.CHUNK_DAMAGED):
    """A chunk is incomplete, or its checksum is wrong."""


class UnreadableRecordError(LogError, kind=ErrorKind.UNREADABLE_RECORD):
    """A record of another producer has a value that a requested column cannot represent."""


class StorageError(LogError, kind=ErrorKind.STORAGE, retriable=True):
    """The brokers or the store cannot be reached, deny access, or are full."""


class AccessDeniedError(StorageError, kind=ErrorKind.ACCESS_DENIED, retriable=False):
    """The brokers or the store deny this user a right that the operation needs."""


class NotStoredError(StorageError, kind=ErrorKind.NOT_STORED, retriable=False):
    """The store never accepts these rows. Each retry appends the accepted rows again."""


class TransactionEndedError(StorageError):
    """The transaction of an atomic load ended without its rows; a retry may append them.

    Another process receives it as `StorageError`.
    """


class UndecidedError(StorageError):
    """The result depends on an open transaction. Another process receives it as `StorageError`."""


_SPACE = "\\u0020"
"""A space in JSON, so that the fields are the last word of a text."""
_STAGE_FAILED = (
    r"Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^()\n]*\): "
)
_FOREACH_BATCH_FAILED = (
    r"\[FOREACH_BATCH_USER_FUNCTION_ERROR\] An error occurred in the user provided function in foreach batch sink\. "
    r"Reason: (?:An exception was raised by the Python Proxy\. Return Message: )?"
)
_FOREACH_BATCH_FAILED_ON_CONNECT = (
    r"(?:\[PYTHON_EXCEPTION\] )?(?:\[session: [\w-]+\] \[userId: [^\[\]\n]*\] )?"
    r"Found error inside foreachBatch Python process: "
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
    _FOREACH_BATCH_FAILED_ON_CONNECT,
    r"\s*An exception was thrown from the Python worker\. Please see the stack trace below\.\s*",
    r"(?:\[PYTHON_EXCEPTION\] )?An exception was thrown from the Python worker:\s",
    # The frames of a traceback are indented. The exception follows them.
    r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+",
)
_OWN = rf"\[(?P<kind>{'|'.join(ErrorKind)})\] (?P<line>[^\n]*)"
_AT_START = re.compile(_OWN)
_IN_PYTHON = re.compile(rf"(?:{'|'.join(_SPARK_PREFIXES)})*?Traceback \(most recent call last\):\n")
_AFTER_PREFIXES = re.compile(rf"(?:{'|'.join(_SPARK_PREFIXES)})+spark_cas(?:\.\w+)+: {_OWN}")


def error_from_text(text: str) -> ConditionalLogError | None:
    """Return the error that the text of an exception contains, None if it contains none.

    The text is that of an error of this package, or of a Spark exception that wraps one.
    """
    return _error_of(_AT_START.match(text)) or wrapped_error(text)


def wrapped_error(text: str) -> ConditionalLogError | None:
    """Return the error that a Spark exception with this text wraps, None if it wraps none.

    Only known prefixes of Spark and the class name may precede the error. A code in brackets elsewhere, such as in an
    input row that Spark quotes, does not match.
    """
    return _error_of(_AFTER_PREFIXES.match(text))


def error_from_line(kind: str, line: str) -> ConditionalLogError:
    """Return the error of this kind from the rest of its text. Raises ValueError if there is no such kind."""
    error, (message, _, last) = ERRORS_BY_KIND[ErrorKind(kind)], line.rpartition(" ")
    if last.startswith("{"):
        with suppress(ValueError, RecursionError):
            fields = json.loads(last, object_pairs_hook=_with_numbers)
            if fields.keys() <= Fields.__annotations__.keys():
                return error(message, **fields)
    return error(line)


def _error_of(result: re.Match[str] | None) -> ConditionalLogError | None:
    return result and error_from_line(result["kind"], result["line"])


def _with_numbers(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    """Return the entries of a JSON object. Keys that are partitions are numbers; a topic has an object as value."""
    return {
        int(key) if not isinstance(value, dict) and re.fullmatch("0|[1-9][0-9]*", key) else key: value
        for key, value in pairs
    }


def has_traceback(text: str) -> bool:
    """Whether the text of an exception of Spark is the traceback of a Python worker, and not only contains one."""
    return _IN_PYTHON.match(text) is not None
