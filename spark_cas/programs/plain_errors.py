"""What ended a program, as one sentence: an error of the log, or the root cause of an error of Spark."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from spark_cas.core.errors import ConditionalLogError, error_from_text, has_traceback
from spark_cas.programs.exit_codes import RowCountError, UsageError

_RAISED_IN_PYTHON = re.compile(r"^\s*[\w.]*(?:Error|Exception): \S.*$", re.MULTILINE)
_SQLSTATE = re.compile(r"\s*SQLSTATE: (\w{5})\b")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]*\] ")
_WRONG_IN_THE_CALL = ("22", "42", "KD", "P0001")
"""SQLSTATE classes of errors that the same command meets again: data, names, syntax, files, and raise_error."""
_NO_HINT = "[FAILED_READ_FILE.NO_HINT]"
_UNREADABLE = frozenset(
    {
        "AccessControlException",
        "AccessDeniedException",
        "ChecksumException",
        "EOFException",
        "FileNotFoundException",
        "SparkIllegalArgumentException",
        "ZipException",
        "ZStandardException",
    }
)
"""Java exceptions for a file that stays unreadable, if Spark has no hint."""
_NOT_COMPRESSED = re.compile(r"gzip|zip2|stream|header|crc|corrupt|compress", re.IGNORECASE)
"""In the message of a plain IOException of a decompressor."""
_RAISED = "[USER_RAISED_EXCEPTION] "
"""Precedes the text of Spark's function raise_error."""
_CSV_HEADER = "CSV header "
"""Begins what Spark says of a header that is not the expected one: what is wrong with it comes in further lines."""
_FILE = re.compile(r"reading file (\S+?)\.(?:\s|$)")


def plain_error(error: Exception) -> Exception:
    """Return the error of the log that an exception of Spark carries; else its root cause, in a line.

    It is a UsageError if the input or the call has to be fixed. A row of the input in the text decides nothing.
    """
    if isinstance(error, ConditionalLogError | RowCountError | UsageError):
        return error
    plain = error_from_text(str(error))
    if plain is not None:
        return plain
    if has_traceback(str(error)):
        return RuntimeError(in_short(error))
    causes = [*_java_causes(error)] or [(type(error).__name__, str(error))]
    return _root_cause(causes)


def in_short(error: BaseException) -> str:
    """Return the message of an error of Spark without plans and stack traces: of a Python worker's, the last line."""
    text = str(error)
    raised = _RAISED_IN_PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    lines = [line.strip() for line in raised[-1:] or text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _java_causes(error: Exception) -> Iterator[tuple[str, str]]:
    """Class and message of an error of the JVM, and of what caused it; nothing of any other."""
    link: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # the JVM may be gone
        while link is not None:
            yield link.getClass().getSimpleName(), link.getMessage() or ""
            link = link.getCause()


def _root_cause(causes: list[tuple[str, str]]) -> Exception:
    """The innermost cause that Spark has a name for, and the innermost of all, with the file that was read."""
    named = [text for _, text in causes if _CONDITION.match(text)]
    kind, text = causes[-1]
    root = f"{kind}: {_line(text)}" if _line(text) else kind
    if not named:
        return RuntimeError(root)
    said = _line(named[-1]) if text == named[-1] else f"{_line(named[-1])} {root}"
    file = next((found[1] for each in named if (found := _FILE.search(each))), None)
    if file is not None and file not in said:
        said += f" (in {file})"
    # Data comes before the state, and a fragment of the query after it.
    states = _SQLSTATE.findall(named[-1].split("\n== SQL (")[0])
    wrong = bool(states) and states[-1].startswith(_WRONG_IN_THE_CALL)
    if wrong and named[-1].startswith(_NO_HINT):
        wrong = kind in _UNREADABLE or (kind == "IOException" and bool(_NOT_COMPRESSED.search(causes[-1][1])))
    if not wrong:
        return RuntimeError(said)
    option = "--read-option enforceSchema=true: by place" if text.startswith(_CSV_HEADER) else "--read-option"
    said = said.removeprefix(_RAISED)
    return UsageError(said if file is None else f"{said} Correct the file, or the way it is read ({option}).")


def _line(text: str) -> str:
    """The first line, or all where that says too little; without the code that stands behind it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = " ".join(lines) if text.startswith(_CSV_HEADER) else next(iter(lines), "")
    return _SQLSTATE.split(told)[0].strip()
