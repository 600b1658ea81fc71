"""The clock of all recorded times, in milliseconds since 1970 like Kafka's timestamps."""

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Return the current time."""
    return time.time_ns() // 1_000_000


def time_text(milliseconds: int) -> str:
    """Return a time in UTC, to the second. Return the number itself if it is out of range of the calendar."""
    try:
        result = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return result.isoformat(" ", "seconds").removesuffix("+00:00")
