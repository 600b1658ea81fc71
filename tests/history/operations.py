"""Read a history: combine the start and finish events in the files of all processes into operations."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK, FAIL, INFO = "ok", "fail", "info"


@dataclass(frozen=True, slots=True)
class Operation:
    """A request of a process and its result. Times are nanoseconds of the machine's monotonic clock."""

    process: str
    name: str
    arguments: Mapping[str, Any]
    start_ns: int
    end_ns: int | None = None
    """None if the process received no result."""
    outcome: str = INFO
    result: Mapping[str, Any] = field(default_factory=dict)


def read_history(folder: Path) -> list[Operation]:
    """Return the operations in the ``*.jsonl`` files of a folder, sorted by start time.

    Incomplete lines are skipped. Without its start line, an operation was never executed. Without its finish line, it
    has no result.

    Raises:
        ValueError: if a finish line has no start line
    """
    found = [each for file in sorted(folder.glob("*.jsonl")) for each in operations_of(_events(file))]
    return sorted(found, key=lambda each: each.start_ns)


def operations_of(events: Iterable[Mapping[str, Any]]) -> list[Operation]:
    """Return the operations of one file in the order of their start lines. Raises ValueError."""
    starts: dict[int, Mapping[str, Any]] = {}
    ends: dict[int, Mapping[str, Any]] = {}
    for event in events:
        number = event["id"]
        if event["event"] == "start":
            starts[number] = event
        elif number not in starts or number in ends or event["event"] not in (OK, FAIL, INFO):
            raise ValueError(
                f"the history of {event['process']} has a {event['event']} of {number} that fits no start"
            )
        else:
            ends[number] = event
    return [_operation(start, ends.get(number)) for number, start in starts.items()]


def _operation(start: Mapping[str, Any], end: Mapping[str, Any] | None) -> Operation:
    asked = Operation(start["process"], start["operation"], start["arguments"], start["time_ns"])
    if end is None:
        return asked
    return Operation(
        asked.process, asked.name, asked.arguments, asked.start_ns, end["time_ns"], end["event"], end["result"]
    )


def _events(file: Path) -> Iterator[Mapping[str, Any]]:
    for line in file.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
