"""Run finalizers in a thread of their own.

Python collects an object in any thread that allocates memory, also within a lock. So a finalizer must not wait there.
"""

import logging
import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

Finalizers = SimpleQueue[Callable[[], object]]

_LOG = logging.getLogger("spark_cas")
_queues: dict[int, Finalizers] = {}
"""By process, because a fork has no threads."""


def finalizers() -> Finalizers:
    """Return the queue of this process. Its thread calls each function in it. A finalizer may put one at any time."""
    queue = _queues.get(os.getpid())
    if queue is None:
        queue = _queues[os.getpid()] = SimpleQueue()
        Thread(target=_run, args=(queue,), name="spark_cas-finalizers", daemon=True).start()
    return queue


def _run(queue: Finalizers) -> None:
    while True:
        try:
            queue.get()()
        except Exception:  # noqa: BLE001 - the thread must not end
            _LOG.exception("a finalizer failed")
