"""Give a deadline to a call of the client that may never return."""

import time
from collections.abc import Callable
from threading import Thread

from confluent_kafka import KafkaError, KafkaException


class Deadlined:
    """A call that runs in a thread of its own and starts at once."""

    def __init__(self, call: Callable[[], None], seconds: float) -> None:
        self._call = call
        self._deadline = time.monotonic() + seconds
        self._raised: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> None:
        """Wait for the call, and raise its exception.

        At the deadline, raise KafkaException with the code of a timeout.

        A call that misses the deadline keeps its thread and the client in use. The caller has to drop that client.
        """
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        if self._thread.is_alive():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka names it so
        raised, self._raised = self._raised, None
        try:
            if raised is not None:
                raise raised
        finally:
            # The exception keeps the frame of the call, and the frame keeps the client alive.
            del raised

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._raised = error.with_traceback(None)
