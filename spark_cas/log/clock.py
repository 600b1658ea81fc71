"""The one clock of whatever is recorded: milliseconds since 1970, as Kafka's timestamps are."""

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """The time now."""
    return time.time_ns() // 1_000_000


def time_text(milliseconds: int) -> str:
    """A time in UTC, to the second; the number itself where the calendar has no such time."""
    try:
        found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return found.isoformat(" ", "seconds").removesuffix("+00:00")
