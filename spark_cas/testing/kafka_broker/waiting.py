"""Waits, each with a deadline."""

import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.05


class BrokerFailedError(RuntimeError):
    """Kafka did not do what was asked of it in time; the message ends with what it said itself."""


def wait_until(condition: Callable[[], bool], seconds: float, failure: Callable[[], str]) -> None:
    """Return once the condition holds; raise `BrokerFailedError` with the text of ``failure`` at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise BrokerFailedError(failure())
        time.sleep(_PAUSE_SECONDS)


def end_of(text: str, lines: int = 20) -> str:
    """The last lines of what a process printed."""
    return "\n".join(text.splitlines()[-lines:]) or "(it printed nothing)"
