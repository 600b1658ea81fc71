"""A call of the client that may never return, within a deadline all the same."""

import time
from collections.abc import Callable
from threading import Thread

from confluent_kafka import KafkaError, KafkaException


class Deadlined:
    """A call in a thread of its own, begun at once."""

    def __init__(self, call: Callable[[], None], seconds: float) -> None:
        self._call = call
        self._deadline = time.monotonic() + seconds
        self._raised: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> None:
        """Wait until it returned, and raise what it raised; KafkaException with a timeout's code at the deadline.

        A call that is given up keeps its thread, and the client that it waits in: that is to be dropped.
        """
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        if self._thread.is_alive():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka names it so
        raised, self._raised = self._raised, None
        try:
            if raised is not None:
                raise raised
        finally:
            # It holds the frame of the call, and that the client: nobody would let go of that.
            del raised

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            self._raised = error.with_traceback(None)
