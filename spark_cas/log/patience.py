"""One patience: what passes is waited for up to one deadline, whatever waits within it, and a long wait is logged."""

import logging
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PATIENCE_MS = 120_000
"""Kafka's own default of ``delivery.timeout.ms``: as long as Spark's sink goes on."""

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
_QUIET_SECONDS = 5.0
"""A shorter wait is nobody's business."""
_LOG_EVERY_SECONDS = 30.0

_JITTER = random.SystemRandom()
_LOG = logging.getLogger("spark_cas")
_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)
_for_others: ContextVar[float] = ContextVar("for_others", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """All that this thread waits for inside ends within so many seconds together, but for a `SecondLook`.

    An outer deadline still holds.

    Not around a ``yield`` of a generator: the deadline would hold for whoever takes what is yielded.
    """
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def anew(seconds: float) -> Iterator[None]:
    """As `within`, whatever is left of an outer deadline: for what must not be left undecided."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def yielding_after(seconds: float) -> Iterator[None]:
    """Inside, what others have not decided is waited for no longer: for who keeps others waiting himself."""
    token = _for_others.set(seconds)
    try:
        yield
    finally:
        _for_others.reset(token)


def wait_for_others(
    seconds: float,
    doing: str,
    first_pause_seconds: float = _FIRST_PAUSE_SECONDS,
    longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS,
) -> "Wait":
    """The wait for what others are to decide, within what `yielding_after` allows."""
    return Wait(min(seconds, _for_others.get()), doing, first_pause_seconds, longest_pause_seconds)


class Wait:
    """Trying again what passes: growing, jittered pauses, a deadline, and a line in the log when it lasts.

    ``doing`` says what is waited for, as errors begin: "looking for topic flights".
    """

    def __init__(
        self,
        seconds: float,
        doing: str,
        first_pause_seconds: float = _FIRST_PAUSE_SECONDS,
        longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS,
    ) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._deadline = min(_deadline.get(), self._began + seconds)
        self._doing = doing
        self._pause = first_pause_seconds
        self._longest_pause = longest_pause_seconds
        self._say_at = self._began + _QUIET_SECONDS

    @property
    def left(self) -> float:
        """Seconds up to the deadline, 0 when it is over."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def waited(self) -> float:
        """Seconds since the first try."""
        return time.monotonic() - self._began

    def again(self, why: str) -> bool:
        """Pause before another try; False, at once, when the deadline is over.

        ``why`` says what the last try met, in the words of an error and without a value of an option.
        """
        if self.left == 0:
            return False
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + _LOG_EVERY_SECONDS
            _LOG.warning(
                "%s: %s. Waiting since %.0f s, for %.0f s more at most.", self._doing, why, self.waited, self.left
            )
        time.sleep(min(self.left, self._pause * _JITTER.uniform(0.5, 1.5)))
        self._pause = min(self._longest_pause, self._pause * 2)
        return True


class SecondLook(Wait):
    """The wait for another look at what is definite once it is said, and is not if a broker only lags behind.

    Its time begins behind the first look, and the last one begins when it is over, however long one takes, and
    wherever the process stands still: what was seen before that tells of before that alone. So an outer deadline does
    not hold.
    """

    _looked_at: float | None = None

    def again(self, why: str) -> bool:
        """As `Wait`; False once a look was begun when the time was over."""
        if self._looked_at is None:
            self._deadline = time.monotonic() + self._seconds
        elif self._looked_at >= self._deadline:
            return False
        super().again(why)
        self._looked_at = time.monotonic()
        return True
