"""Run finalizers in a thread of their own.

Python collects an object in any thread that allocates memory, also within a lock. So a finalizer must not wait there.
"""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread

from spark_cas.log import timing

Finalizers = SimpleQueue[Callable[[], object]]

_LOG = logging.getLogger("spark_cas")
_queues: dict[int, Finalizers] = {}
"""By process, because a fork has no threads."""


def finalizers() -> Finalizers:
    """Return the queue of this process. A finalizer may put a function into it at any time.

    The thread of the queue calls each function, and calls it again later while the result is True.
    """
    queue = _queues.get(os.getpid())
    if queue is None:
        queue = SimpleQueue()
        Thread(target=_run, args=(queue,), name="spark_cas-finalizers", daemon=True).start()
        _queues[os.getpid()] = queue
    return queue


def is_in_use(owned: list[object]) -> bool:
    """Destroy the object in ``owned`` if nothing else refers to it, and return whether something does.

    The collection that found the object unused may still run. If this thread removed its reference before that
    collection checks which objects have one from outside, the collection would destroy the object.
    """
    if _references(owned) > _LEAST_REFERENCES:
        return True
    owned.clear()
    return False


def _references(owned: list[object]) -> int:
    """Return the number of references to the object, with those of this call."""
    return sys.getrefcount(owned[0])


_LEAST_REFERENCES = _references([object()])


def _run(queue: Finalizers) -> None:
    waiting: list[Callable[[], object]] = []
    while True:
        with suppress(Empty):
            waiting.append(queue.get(timeout=timing.current().longest_poll_pause if waiting else None))
        waiting = [each for each in waiting if _is_incomplete(each)]


def _is_incomplete(finalizer: Callable[[], object]) -> bool:
    try:
        return finalizer() is True
    except Exception:  # noqa: BLE001 - the thread must not end
        _LOG.exception("a finalizer failed")
        return False
