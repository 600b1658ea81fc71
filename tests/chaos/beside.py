"""Actions on a log that run in parallel with its clients and with the nemesis, which continues its schedule."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from spark_cas.core.errors import ConditionalLogError
from spark_cas.log.backend import Backend
from tests.chaos.faults import Undo

_SECONDS = 120


class Beside:
    """A thread that runs one action at a time.

    It ignores errors of the log, because faults may cause them; a later fault may retry.
    """

    def __init__(self, open_: Callable[[], Backend]) -> None:
        self._open = open_
        self._thread: Thread | None = None

    def begin(self, target: str, act: Callable[[Backend], None]) -> tuple[str, Undo] | None:
        """Begin the action, which ends without a call. Return None if the previous one is still running."""
        if self._thread is not None and self._thread.is_alive():
            return None
        self._thread = Thread(target=self._act, args=(act,), name="beside", daemon=True)
        self._thread.start()
        return target, lambda: None

    def finish(self) -> None:
        """Wait for the last action. Raises TimeoutError."""
        if self._thread is not None:
            self._thread.join(_SECONDS)
            if self._thread.is_alive():
                raise TimeoutError(f"the action on the log did not end within {_SECONDS} s")

    def _act(self, act: Callable[[Backend], None]) -> None:
        with suppress(ConditionalLogError), self._open() as log:
            act(log)
