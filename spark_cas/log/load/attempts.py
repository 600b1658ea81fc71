"""Other attempts at the same rows: another task of the same write is refused, another attempt of the task awaited."""

import random
import time
from collections.abc import Callable, Iterator

from spark_cas.core.claim import Claim
from spark_cas.core.errors import NotRoutedError
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Fenced
from spark_cas.core.plan import Progress
from spark_cas.core.refusal import error_of
from spark_cas.log.backend import Backend
from spark_cas.log.load.require_expected import lost_to_another

FENCED_WAIT_SECONDS = 30.0
_RIVAL_TRIES = 24
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.5
_JITTER = random.SystemRandom()
_FIRST_POLL_SECONDS = 0.005
_POLL_SECONDS = 0.2


def rival_tries() -> Iterator[int]:
    """A number for each try among writers that get in each other's way, pausing in between: a bounded few.

    The pauses grow, and are of random length, so that not all come back at once.
    """
    for attempt in range(_RIVAL_TRIES):
        if attempt:
            time.sleep(_JITTER.uniform(0, min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt)))
        yield attempt


def refuse_second_task(partition: int, mine: str, other: str | None) -> None:
    """NotRoutedError when two tasks, named ``run/number``, of one run have rows of a partition.

    No order among them can be kept.
    """
    run = mine.rpartition("/")[0]
    if other and other != mine and other.rpartition("/")[0] == run:
        raise NotRoutedError(
            f"partition {partition} gets rows from two tasks of one write, and those of one of them may be in the "
            f"log by now. All rows of a log partition must be in one task: use spark_cas.route(df, ...), change "
            f"nothing between it and the write, and run the same job again."
        )


def await_other(
    log: Backend,
    claim: Claim,
    fenced: Fenced,
    *,
    done: Callable[[Progress], bool],
    missing: Callable[[Progress | None], bool],
    wait_seconds: float,
    seen: Callable[[Progress | None], None] = lambda _: None,
) -> Progress:
    """Wait for the writer that fenced this one, and return the job's ledger entry.

    Args:
        log: The log.
        claim: The claim that was fenced.
        fenced: The outcome that reported it.
        done: Whether a ledger entry ends the wait.
        missing: Whether rows have to be appended after a ledger entry. If a record of another job is at their place,
            no writer can append them, and the wait ends.
        wait_seconds: How long to wait without progress.
        seen: Called with each ledger entry; its errors end the wait.

    Raises:
        ConflictError: A record of another job is at the place of the missing rows.
        FencedError: There was no progress for ``wait_seconds``.
    """
    partition, plan = claim.partition, claim.plan
    newest: Progress | None = None
    looked_at: tuple[Progress | None, Bounds] | None = None
    deadline = time.monotonic() + wait_seconds
    pause = _FIRST_POLL_SECONDS
    while True:
        look_began = time.monotonic()
        progress = log.progress(partition, plan.job, plan.group)
        seen(progress)
        if progress and done(progress):
            return progress
        if missing(progress):
            (bounds,) = log.bounds_of([partition], waiting=False)
            # What lies behind the job's rows is read again only when there is more of it.
            if (progress, bounds) != looked_at:
                looked_at = progress, bounds
                lost = lost_to_another(log, plan, partition, progress, bounds)
                if lost is not None:
                    raise error_of(lost, partition)
        if progress != newest:
            newest, deadline = progress, time.monotonic() + wait_seconds
        # A look from before tells of before: this process, too, may stand still.
        if look_began >= deadline:
            raise error_of(fenced, partition)
        time.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS)
