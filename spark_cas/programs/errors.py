"""Errors of the programs: exit codes, and one-line messages for errors of the log and of Spark."""

import re
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from typing import Any

from spark_cas.core.errors import (
    AccessDeniedError,
    ConditionalLogError,
    InputChangedError,
    InputError,
    LogError,
    RefusedError,
    UnreadableInputError,
    has_traceback,
    wrapped_error,
)

_RAISED_IN_PYTHON = re.compile(r"^\s*[\w.]*(?:Error|Exception): \S.*$", re.MULTILINE)
_SQLSTATE = re.compile(r"\s*SQLSTATE: (\w{5})\b")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]*\] ")
_INVALID_CALL = ("22", "42", "KD", "P0001")
"""SQLSTATE prefixes of errors that a retry cannot fix: data, names, syntax, files, and raise_error."""
_NO_HINT = "[FAILED_READ_FILE.NO_HINT]"
_DAMAGED = frozenset(
    {
        "ArithmeticException",
        "ChecksumException",
        "EOFException",
        "ParquetDecodingException",
        "ZipException",
        "ZStandardException",
        "ZstdIOException",
    }
)
"""Java exceptions for the content of a file, if Spark has no hint."""
_UNREADABLE = frozenset(
    {
        "AccessControlException",
        "AccessDeniedException",
        "ClassNotFoundException",
        "FileNotFoundException",
        "ParquetCryptoRuntimeException",
        "SparkIllegalArgumentException",
    }
)
"""Other Java exceptions for a file that stays unreadable, if Spark has no hint."""
_NOT_COMPRESSED = re.compile(
    r"gzip|zip2|stream|header|crc|corrupt|compress|(data|length) check"
    r"|invalid (bit|block|code|distance|literal|stored|window)|too many length",
    re.IGNORECASE,
)
"""Pattern in the message of a decompressor's IOException."""
_ORC_FRACTION = "nanos > 999999999 or < 0"
"""Message of Java for a time before 1970 with a fraction of a second, as the C++ library of ORC writes it."""
RAISED = "[USER_RAISED_EXCEPTION] "
"""Prefix of the text of Spark's function raise_error."""
_CSV_HEADER = "CSV header "
"""Prefix of Spark's message about an unexpected CSV header. The details are on its further lines."""
_FILE = re.compile(r"reading file (\S+?)\.(?:\s|$)")


class ExitCode(IntEnum):
    """Exit code of a run."""

    COMPLETE = 0
    """The job is complete, by this run or an earlier one."""
    FAILED = 1
    """A failure that may pass. Rerun the same command."""
    USAGE = 2
    """The arguments or the input are invalid. Fix them before a rerun."""
    REFUSED = 3
    """A condition failed, and fails in each rerun. None of the rejected rows is visible."""
    INPUT_CHANGED = 4
    """The rows differ from those with which the job began."""
    DIFFERENT = 5
    """The comparison finished and found differences. A rerun gives the same result."""
    LOG_UNUSABLE = 6
    """The log or its records are missing, damaged or of an unknown format, or the store is unsafe.

    A rerun fails until an operator fixes it.
    """
    ACCESS_DENIED = 7
    """A right is missing. A rerun fails until an administrator grants it."""
    WARNING = 8
    """`spark-cas doctor` found a warning, and no error."""
    ERROR = 9
    """`spark-cas doctor` found an error: writers or readers are blocked, or rows can be lost or duplicated."""
    INTERRUPTED = 130
    """Ctrl-C. The same command resumes the run."""


class UsageError(Exception):
    """The call is invalid in a way that no error of the log covers, such as an SQL expression."""


class RowCountError(Exception):
    """The log has a different number of rows than the files."""


_EXIT_CODES: tuple[tuple[tuple[type[BaseException], ...], ExitCode], ...] = (
    ((KeyboardInterrupt,), ExitCode.INTERRUPTED),
    ((RefusedError,), ExitCode.REFUSED),
    ((InputChangedError,), ExitCode.INPUT_CHANGED),
    ((InputError, UsageError), ExitCode.USAGE),
    ((RowCountError,), ExitCode.DIFFERENT),
    ((AccessDeniedError,), ExitCode.ACCESS_DENIED),
    ((LogError,), ExitCode.LOG_UNUSABLE),
)
"""The exit codes of errors that are not retriable. The first match applies."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error that ends a run."""
    if isinstance(error, ConditionalLogError) and (error.retriable or error.resumable):
        return ExitCode.FAILED
    return next((code for kinds, code in _EXIT_CODES if isinstance(error, kinds)), ExitCode.FAILED)


def kind_of(error: BaseException) -> str:
    """Return the stable token of an error of this project, or the class name of any other error."""
    return str(error.kind) if isinstance(error, ConditionalLogError) else type(error).__name__


def line_of(error: BaseException) -> str:
    """Return the text of an error for a person: an error of this project without its fields."""
    return error.line if isinstance(error, ConditionalLogError) else str(error)


def plain_error(error: Exception) -> Exception:
    """Return the error of the log that an exception of Spark contains, or its root cause in one line.

    The result is a UsageError if the input or the call is wrong. Text of input rows in the message does not affect
    it.
    """
    if isinstance(error, ConditionalLogError | RowCountError | UsageError):
        return error
    plain = wrapped_error(str(error))
    if plain is not None:
        return plain
    if has_traceback(str(error)):
        return RuntimeError(in_short(error))
    causes = [*_java_causes(error)] or [(type(error).__name__, str(error))]
    return _root_cause(causes)


def in_short(error: BaseException) -> str:
    """Return the message of a Spark error without plans and stack traces.

    For an error in a Python worker, this is the last exception line.
    """
    text = str(error)
    raised = _RAISED_IN_PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    lines = [line.strip() for line in raised[-1:] or text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _java_causes(error: Exception) -> Iterator[tuple[str, str]]:
    """Yield the class and message of a JVM error and of each of its causes. Yield nothing for other errors."""
    link: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # the JVM may have ended
        while link is not None:
            yield link.getClass().getSimpleName(), link.getMessage() or ""
            link = link.getCause()


def _root_cause(causes: list[tuple[str, str]]) -> Exception:
    """Return an error with the innermost cause that has a Spark error condition, and the root cause.

    The message also names the file that was read, if known.
    """
    named = [text for _, text in causes if _CONDITION.match(text)]
    kind, text = causes[-1]
    root = f"{kind}: {_line(text)}" if _line(text) else kind
    if text == _ORC_FRACTION:
        return UsageError(
            "--input: an ORC file of PyArrow has a time before 1970 with a fraction of a second, which Spark cannot "
            "read. Nothing was appended. Write the file as Parquet."
        )
    if not named:
        return RuntimeError(root)
    message = _line(named[-1]) if text == named[-1] else f"{_line(named[-1])} {root}"
    file = next((match[1] for each in named if (match := _FILE.search(each))), None)
    if file is not None and file not in message:
        message += f" (in {file})"
    # Text from the data precedes the SQLSTATE. A fragment of the query follows it.
    states = _SQLSTATE.findall(named[-1].split("\n== SQL (")[0])
    is_invalid = bool(states) and states[-1].startswith(_INVALID_CALL)
    is_damaged = False
    if is_invalid and named[-1].startswith(_NO_HINT):
        is_damaged = kind in _DAMAGED or (kind == "IOException" and bool(_NOT_COMPRESSED.search(text)))
        is_invalid = is_damaged or kind in _UNREADABLE
    if not is_invalid:
        return RuntimeError(message)
    message = message.removeprefix(RAISED)
    if file is None:
        return UsageError(message)
    option = "--read-option enforceSchema=true, by position" if text.startswith(_CSV_HEADER) else "--read-option"
    # No read option helps if Spark cannot read the bytes of a file.
    fix = "" if named[-1].startswith(_NO_HINT) else f", or change how Spark reads it ({option})"
    message = f"{message.removesuffix('.')}. Correct the file{fix}."
    return UnreadableInputError(message) if is_damaged else UsageError(message)


def _line(text: str) -> str:
    """Return the first line without the SQLSTATE, or all lines of a CSV header error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = " ".join(lines) if text.startswith(_CSV_HEADER) else next(iter(lines), "")
    return _SQLSTATE.split(line)[0].strip()
