"""The end of a history that a client is still writing: find its last request without reading the whole file."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_TAIL_BYTES = 8192

Line = dict[str, Any]


def lines_from_end(file: Path) -> Iterator[Line]:
    """Yield the last lines of a history, newest first. Incomplete lines are skipped."""
    for line in reversed(file.read_bytes()[-_TAIL_BYTES:].splitlines()):
        with suppress(ValueError):
            yield json.loads(line)


def under_way(file: Path, operation: str) -> Line | None:
    """Return the arguments of an operation that a client has in progress; None if it has none of this name."""
    newest = next(lines_from_end(file), None)
    if newest is None or newest["event"] != "start" or newest["operation"] != operation:
        return None
    arguments: Line = newest["arguments"]
    return arguments
