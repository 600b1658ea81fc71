"""Deadlines and backoff: one deadline covers all nested retries, and long waits are logged."""

import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

from spark_cas.log import timing

_Value = TypeVar("_Value")
_JITTER = random.SystemRandom()
_LOG = logging.getLogger("spark_cas")
_for_others: ContextVar[float] = ContextVar("for_others", default=math.inf)


@dataclass(slots=True)
class _Deadline:
    """A deadline within another one. The earlier of them applies."""

    at: float
    outer: "_Deadline | None" = None
    extensible: bool = False

    @property
    def effective(self) -> float:
        return self.at if self.outer is None else min(self.at, self.outer.effective)


_NEVER = _Deadline(math.inf)
_deadline: ContextVar[_Deadline] = ContextVar("deadline", default=_NEVER)


@contextmanager
def _replaced(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def within(seconds: float, *, extensible: bool = False) -> AbstractContextManager[None]:
    """Limit the waits of this thread in the block to ``seconds`` in total, except those of a `ConfirmingRead`.

    An outer deadline still applies. `extend` moves an ``extensible`` deadline.

    Do not put this around a ``yield`` of a generator: the deadline would also apply to the code that consumes it.
    """
    return _replaced(_deadline, _Deadline(time.monotonic() + seconds, _deadline.get(), extensible))


class BackgroundCall(Thread):
    """A call of a library that has no deadline, in a thread of its own. It starts at once."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        super().__init__(name="spark_cas-call", daemon=True)
        self._call = call
        self._ends_at = time.monotonic() + seconds
        self._raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._raised = error.with_traceback(None)

    def result(self) -> None:
        """Wait for the call.

        Raises:
            TimeoutError: The call has not ended. It continues, and its result is ignored.
            BaseException: The exception of the call.
        """
        self.join(max(0.0, self._ends_at - time.monotonic()))
        if self.is_alive():
            raise TimeoutError
        raised, self._raised = self._raised, None
        try:
            if raised is not None:
                raise raised
        finally:
            # The exception keeps the frame of the call, and the frame keeps the objects of the call alive.
            del raised


def call_within(seconds: float, call: Callable[[], None]) -> None:
    """Call a function of a library that has no deadline. Raises as `BackgroundCall.result`."""
    BackgroundCall(seconds, call).result()


def fresh_deadline(seconds: float) -> AbstractContextManager[None]:
    """Set an extensible deadline and ignore outer ones, for steps whose outcome has to be determined."""
    return _replaced(_deadline, _Deadline(time.monotonic() + seconds, extensible=True))


def extend(seconds: float) -> None:
    """Move each extensible deadline around this call to at least ``seconds`` from now.

    Call it when the store makes progress, for example when data arrives. A deadline that is not extensible stays.
    """
    least = time.monotonic() + seconds
    each: _Deadline | None = _deadline.get()
    while each is not None:
        if each.extensible:
            each.at = max(each.at, least)
        each = each.outer


def cap_wait_on_others(seconds: float) -> AbstractContextManager[None]:
    """Limit the waits for other writers in the block, for a writer that blocks others itself."""
    return _replaced(_for_others, seconds)


def wait_for_others(
    seconds: float, doing: str, first_pause_seconds: float | None = None, longest_pause_seconds: float | None = None
) -> "Wait":
    """Return a `Wait` for another writer, within the limit of `cap_wait_on_others`."""
    return Wait(min(seconds, _for_others.get()), doing, first_pause_seconds, longest_pause_seconds)


class Wait:
    """Retries of a transient failure: jittered exponential backoff, a deadline, and a log line for a long wait.

    ``doing`` describes the operation, as an error does: "looking for topic flights".
    """

    def __init__(
        self,
        seconds: float,
        doing: str,
        first_pause_seconds: float | None = None,
        longest_pause_seconds: float | None = None,
    ) -> None:
        durations = timing.current()
        self._seconds = seconds
        self._began = time.monotonic()
        self._deadline = _Deadline(self._began + seconds, _deadline.get())
        self._doing = doing
        self._pause = durations.first_pause if first_pause_seconds is None else first_pause_seconds
        self._longest_pause = durations.longest_pause if longest_pause_seconds is None else longest_pause_seconds
        self._say_at = self._began + durations.unlogged_wait

    @property
    def left(self) -> float:
        """Seconds until the deadline, 0 after it."""
        return max(0.0, self._deadline.effective - time.monotonic())

    @property
    def waited(self) -> float:
        """Seconds since the first attempt."""
        return time.monotonic() - self._began

    def again(self, why: str) -> bool:
        """Pause before a retry; return False at once after the deadline.

        ``why`` is the reason of the last failure, as in an error, without option values.
        """
        if self.left == 0:
            return False
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + timing.current().log_interval
            _LOG.warning(
                "%s: %s. Waiting since %.0f s, for %.0f s more at most.", self._doing, why, self.waited, self.left
            )
        time.sleep(min(self.left, self._pause * _JITTER.uniform(0.5, 1.5)))
        self._pause = min(self._longest_pause, self._pause * 2)
        return True


class ConfirmingRead(Wait):
    """Confirming reads before a permanent error, because a broker with stale metadata may report the same.

    The time starts after the first read. The last read starts after this time, no matter how long a read takes or the
    process is suspended: a read shows only the state before it. Outer deadlines therefore do not apply.
    """

    _read_at: float | None = None

    def again(self, why: str) -> bool:
        """Pause as `Wait` does; return False if the last read started after the time."""
        if self._read_at is None:
            self._deadline = _Deadline(time.monotonic() + self._seconds)
        elif self._read_at >= self._deadline.at:
            return False
        super().again(why)
        self._read_at = time.monotonic()
        return True
