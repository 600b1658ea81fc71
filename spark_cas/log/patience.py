"""One patience: what passes is waited for up to one deadline, whatever waits within it, and a long wait is logged."""

import logging
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

PATIENCE_MS = 120_000
"""Kafka's own default of ``delivery.timeout.ms``: as long as Spark's sink goes on."""

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
_QUIET_SECONDS = 5.0
"""A shorter wait is nobody's business."""
_LOG_EVERY_SECONDS = 30.0

_JITTER = random.SystemRandom()
_LOG = logging.getLogger("spark_cas")
_for_others: ContextVar[float] = ContextVar("for_others", default=math.inf)


@dataclass(slots=True)
class _Deadline:
    """A deadline, and the one around it, which holds as well."""

    at: float
    outer: "_Deadline | None" = None
    extensible: bool = False

    @property
    def effective(self) -> float:
        return self.at if self.outer is None else min(self.at, self.outer.effective)


_NEVER = _Deadline(math.inf)
_deadline: ContextVar[_Deadline] = ContextVar("deadline", default=_NEVER)


@contextmanager
def within(seconds: float, *, extensible: bool = False) -> Iterator[None]:
    """Limit all waits of this thread inside to so many seconds together, except those of a `SecondLook`.

    An outer deadline still holds. `extend` moves an ``extensible`` deadline.

    Do not put this around a ``yield`` of a generator: the deadline would also hold for the code that consumes it.
    """
    token = _deadline.set(_Deadline(time.monotonic() + seconds, _deadline.get(), extensible))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def anew(seconds: float) -> Iterator[None]:
    """Set an extensible deadline, and ignore the outer ones: for steps that must not stay undecided."""
    token = _deadline.set(_Deadline(time.monotonic() + seconds, extensible=True))
    try:
        yield
    finally:
        _deadline.reset(token)


def extend(seconds: float) -> None:
    """Move each extensible deadline around this call to at least so many seconds from now.

    Call it when the store makes progress, for example when data arrives. A deadline that is not extensible holds.
    """
    least = time.monotonic() + seconds
    each: _Deadline | None = _deadline.get()
    while each is not None:
        if each.extensible:
            each.at = max(each.at, least)
        each = each.outer


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
        self._deadline = _Deadline(self._began + seconds, _deadline.get())
        self._doing = doing
        self._pause = first_pause_seconds
        self._longest_pause = longest_pause_seconds
        self._say_at = self._began + _QUIET_SECONDS

    @property
    def left(self) -> float:
        """Seconds up to the deadline, 0 when it is over."""
        return max(0.0, self._deadline.effective - time.monotonic())

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
            self._deadline = _Deadline(time.monotonic() + self._seconds)
        elif self._looked_at >= self._deadline.at:
            return False
        super().again(why)
        self._looked_at = time.monotonic()
        return True
