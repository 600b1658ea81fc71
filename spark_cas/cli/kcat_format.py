"""Format strings of kcat (``kcat -f``), such as ``%o %k``."""

import re
from collections.abc import Callable

from spark_cas.cli.lines import Record

_PART = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)|\\$", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_NULL = b"NULL"


def parse_format(text: str, topic: str) -> Callable[[Record], bytes]:
    """Return a function that formats a record as kcat does, without a line break at the end.

    Args:
        text: The format string.
        topic: The name of the log, for ``%t``.

    Raises:
        ValueError: The text has an unknown format or escape. The message lists the known formats.
    """
    fields = _fields_of(topic)
    parts: list[Callable[[Record], bytes]] = []
    for match in _PART.finditer(text):
        name, escape, literal = match.groups()
        if name == "%":
            parts.append(_constant(b"%"))
        elif name is not None:
            if name not in fields:
                raise ValueError(f"a format with {', '.join(f'%{each}' for each in fields)} and %%")
            parts.append(fields[name])
        elif literal is not None:
            parts.append(_constant(literal.encode("utf-8", "surrogateescape")))
        elif escape in _ESCAPES:
            parts.append(_constant(_ESCAPES[escape]))
        elif escape is not None and len(escape) > 1:
            parts.append(_constant(bytes.fromhex(escape[1:])))
        else:
            raise ValueError(r"a format whose escapes are \n, \r, \t, \0, \xNN and \\")
    return lambda record: b"".join(part(record) for part in parts)


def _constant(value: bytes) -> Callable[[Record], bytes]:
    return lambda _: value


def _fields_of(topic: str) -> dict[str, Callable[[Record], bytes]]:
    return {
        "t": _constant(topic.encode()),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: record.key or b"",
        "K": lambda record: b"%d" % _size(record.key),
        "s": lambda record: record.value or b"",
        "S": lambda record: b"%d" % _size(record.value),
        "T": lambda record: b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms),
        "h": _headers,
    }


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _headers(record: Record) -> bytes:
    entries = record.headers or ()
    return b",".join(name.encode() + b"=" + (_NULL if value is None else value) for name, value in entries)
