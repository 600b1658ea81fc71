"""Concurrent attempts at the same rows: reject another task of the same run, wait for another attempt of the task."""

import random
import time
from collections.abc import Callable, Iterator

from spark_cas.core.claim import Claim
from spark_cas.core.errors import NotRoutedError
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Fenced, error_of
from spark_cas.core.plan import Progress
from spark_cas.log import timing
from spark_cas.log.backend import Backend
from spark_cas.log.load.require_expected import lost_to_another

FENCED_RETRY_WAIT_SECONDS = 30.0
_RIVAL_TRIES = 24
_JITTER = random.SystemRandom()


def rival_tries() -> Iterator[int]:
    """Yield the number of each attempt among competing writers, up to a fixed limit, with a pause between attempts.

    The pauses grow exponentially, with jitter so that competing writers do not retry at the same time.
    """
    durations = timing.current()
    for attempt in range(_RIVAL_TRIES):
        if attempt:
            pause = min(durations.longest_pause / 2, 4 * durations.poll_pause * 2**attempt)
            time.sleep(_JITTER.uniform(0, pause))
        yield attempt


def refuse_second_task(partition: int, own: str, other: str | None) -> None:
    """Raise NotRoutedError if two tasks of one run have rows of the same partition.

    The log cannot preserve the row order across tasks. The name of a task is ``run/number``.
    """
    run = own.rpartition("/")[0]
    if other and other != own and other.rpartition("/")[0] == run:
        raise NotRoutedError(
            f"partition {partition} gets rows from two tasks of one write, and those of one of them may be in the "
            f"log by now. All rows of a log partition must be in one task: use spark_cas.route(df, ...), change "
            f"nothing between it and the write, and run the same job again.",
            partition=partition,
        )


def await_other(
    log: Backend,
    claim: Claim,
    fenced: Fenced,
    *,
    done: Callable[[Progress], bool],
    missing: Callable[[Progress | None], bool],
    wait_seconds: float,
    known: Callable[[Progress | None], None] = lambda _: None,
) -> Progress:
    """Wait for the writer that fenced this one, and return the job's ledger entry.

    Args:
        done: Returns whether a ledger entry ends the wait.
        missing: Returns whether rows have to be appended after a ledger entry. If a record of another job is at their
            offset, no writer can append them, and the wait ends.
        known: Called with each ledger entry; its errors end the wait.

    Raises:
        ConflictError: A record of another job is at the offset of the missing rows.
        FencedError: There was no progress for ``wait_seconds``.
    """
    partition, plan = claim.partition, claim.plan
    newest: Progress | None = None
    last_read: tuple[Progress | None, Bounds] | None = None
    deadline = time.monotonic() + wait_seconds
    durations = timing.current()
    pause = 10 * durations.poll_pause
    while True:
        read_began = time.monotonic()
        progress = log.progress(partition, plan.job, plan.group)
        known(progress)
        if progress and done(progress):
            return progress
        if missing(progress):
            (bounds,) = log.bounds_of([partition], waiting=False)
            # Read the records after the job's rows only if the ledger entry or the bounds changed.
            if (progress, bounds) != last_read:
                last_read = progress, bounds
                lost = lost_to_another(log, plan, partition, progress, bounds)
                if lost is not None:
                    raise error_of(lost, partition)
        if progress != newest:
            newest, deadline = progress, time.monotonic() + wait_seconds
        # Require a read that started after the deadline, because this process may have been suspended.
        if read_began >= deadline:
            raise error_of(fenced, partition)
        time.sleep(pause)
        pause = min(2 * pause, 2 * durations.longest_poll_pause)
