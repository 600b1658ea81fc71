"""Waits with a deadline."""

import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.05


class BrokerFailedError(RuntimeError):
    """Kafka did not complete an operation in time. The message ends with its own output."""


def wait_until(condition: Callable[[], bool], seconds: float, failure: Callable[[], str]) -> None:
    """Return when the condition is true. At the deadline, raise `BrokerFailedError` with the text of ``failure``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise BrokerFailedError(failure())
        time.sleep(_PAUSE_SECONDS)


def end_of(text: str, lines: int = 20) -> str:
    """Return the last lines of a process's output."""
    return "\n".join(text.splitlines()[-lines:]) or "(it printed nothing)"
