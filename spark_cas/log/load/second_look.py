"""That records are gone is said after more than one look: who was just deposed says where a log ended then."""

import time
from collections.abc import Callable
from typing import TypeVar

from spark_cas.core.outcome import Truncated

_PAUSES_SECONDS = (0.05, 0.15, 0.3, 0.5)

Found = TypeVar("Found")


def looked_again(found: Found, look: Callable[[], Found]) -> Found:
    """What was found, or what a later look finds where that says that the log lost records."""
    for pause in _PAUSES_SECONDS:
        if not isinstance(found, Truncated):
            break
        time.sleep(pause)
        found = look()
    return found
