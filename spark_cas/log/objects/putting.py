"""Putting what may be put only once, and finding out what became of it."""

import random
import time
from collections.abc import Iterator

from spark_cas.core.errors import StorageError
from spark_cas.core.outcome import PutReply
from spark_cas.log.objects.store import Store

PUT_DEADLINE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
_JITTER = random.SystemRandom()


def tries() -> Iterator[int]:
    """Count tries from 0 on with a jittered, growing pause between them, until the deadline."""
    deadline = time.monotonic() + PUT_DEADLINE_SECONDS
    attempt = 0
    while True:
        yield attempt
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt) * _JITTER.uniform(0.5, 1.5)
        if time.monotonic() + pause > deadline:
            return
        time.sleep(pause)
        attempt += 1


def put_once(store: Store, path: str, data: bytes) -> bytes | memoryview:
    """Put an object unless there is one, and return the bytes that the name holds then: the first writer's.

    Raises StorageError when the store does not come to an answer before the deadline.
    """
    for _ in tries():
        if store.create(path, data) is PutReply.CREATED:
            return data
        found = store.get(path)
        if found is not None:
            return found
    raise StorageError(
        f"writing {path}: the store neither took it nor holds it after {PUT_DEADLINE_SECONDS:.0f} s. "
        f"Check that the store is well, then run the same job again."
    )
