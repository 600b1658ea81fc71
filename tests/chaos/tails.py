"""The end of a history while it is written: what its client asked for last, without reading all of it."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_TAIL_BYTES = 8192

Line = dict[str, Any]


def lines_from_end(file: Path) -> Iterator[Line]:
    """The last lines of a history, the newest first; a torn one, and what is left of one cut off, is passed over."""
    for line in reversed(file.read_bytes()[-_TAIL_BYTES:].splitlines()):
        with suppress(ValueError):
            yield json.loads(line)


def under_way(file: Path, operation: str) -> Line | None:
    """The arguments of the operation that a client is at, None where it rests or is at another."""
    newest = next(lines_from_end(file), None)
    if newest is None or newest["event"] != "start" or newest["operation"] != operation:
        return None
    arguments: Line = newest["arguments"]
    return arguments
