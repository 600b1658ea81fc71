"""Read bounds of several partitions that do not split an atomic load, even under constant appends.

Brokers write the marker of a commit to one partition after the other, and do not report which transaction a record
belongs to. But the ledger of a load lists all of its partitions. If the ledgers are equal before and after the bounds
are read, no atomic load was committed in between, so the bounds split none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from spark_cas.core.errors import UndecidedError
from spark_cas.core.offsets import Bounds
from spark_cas.core.plan import Progress
from spark_cas.log import timing
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.error_text import NotPermittedError
from spark_cas.log.kafka.offsets import end_offsets

_DOING = "looking where partitions end that loads are committed to as a whole"

Entries = tuple[Progress | None, ...]
"""The ledger entries of a job, by partition."""


@dataclass(frozen=True, slots=True)
class WholeLoads:
    """The two requests for the state of atomic loads."""

    jobs: Callable[[], Mapping[str, bool]]
    """Returns all atomic loads, and whether each is complete. A complete load is visible in all partitions."""
    entries: Callable[[str], Entries]
    """Returns the ledger entries of a load after all transactions that may change them have ended."""


def at_one_moment(
    admin: Admin, ats: list[TopicPartition], loads: WholeLoads, timeout_seconds: float
) -> tuple[Bounds, ...]:
    """Return the bounds of several partitions, such that each atomic load is in all of them or in none.

    If the principal may not read the records of loads, the bounds may split a load that is being committed.

    Raises:
        UndecidedError: A transaction is open for longer than the timeout, or loads are committed for as long without
            a pause.
        StorageError: The brokers did not answer.
    """
    if len(ats) <= 1:
        return end_offsets.barriers(admin, ats, timeout_seconds)
    result = end_offsets.stable_ends(admin, ats, timeout_seconds)
    if result is not None:
        return result
    pause = timing.current().first_pause
    wait = Wait(timeout_seconds, _DOING, pause, pause)
    try:
        before = loads.jobs()
        requested = {job for job, complete in before.items() if not complete}
        entries = _known(loads, requested)
        while True:
            result = end_offsets.barriers(admin, ats, timeout_seconds)
            after = loads.jobs()
            requested |= after.keys() - before.keys()
            entries_before, entries = entries, _known(loads, requested)
            if entries == entries_before:
                return result
            if not wait.again("loads are committed"):
                raise UndecidedError(
                    f"{_DOING}: for {wait.waited:.0f} s others were committed again and again. Try again when fewer "
                    f"loads are written as a whole at once."
                )
    except NotPermittedError:
        return end_offsets.barriers(admin, ats, timeout_seconds)


def _known(loads: WholeLoads, jobs: set[str]) -> dict[str, Entries]:
    """Return the ledger entries of those jobs that have any."""
    result = {job: loads.entries(job) for job in sorted(jobs)}
    return {job: entries for job, entries in result.items() if any(entries)}
