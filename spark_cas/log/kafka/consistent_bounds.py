"""Bounds of several partitions that cut no load as a whole, however busy the partitions are.

Brokers write the marker of a commit into one partition after the other. Whose records those are, the brokers do not
tell, but the ledger of a load names all of its partitions: where no load as a whole was committed between a look at
the ledgers and another, none is cut by the bounds that were found in between.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from spark_cas.core.errors import UndecidedError
from spark_cas.core.offsets import Bounds
from spark_cas.core.plan import Progress
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.error_text import NotPermittedError
from spark_cas.log.patience import Wait

_DOING = "looking where partitions end that loads are committed to as a whole"
_PAUSE_SECONDS = 0.02

Entries = tuple[Progress | None, ...]
"""The ledger entries of a job in the partitions."""


@dataclass(frozen=True, slots=True)
class WholeLoads:
    """What two questions tell of the jobs that append to all partitions in one step."""

    jobs: Callable[[], Mapping[str, bool]]
    """All of them, and whether each is complete: then it was visible in all partitions before that was recorded."""
    entries: Callable[[str], Entries]
    """Those of one of them, once no transaction that may change them is open."""


def at_one_moment(
    admin: Admin, ats: list[TopicPartition], loads: WholeLoads, timeout_seconds: float
) -> tuple[Bounds, ...]:
    """The bounds of several partitions, such that a load as a whole is in all of those or in none.

    Who may not see what is recorded of loads is told bounds all the same, which may cut one that is being committed.

    Raises UndecidedError when a transaction is open for longer, or loads are committed for as long without a pause;
    StorageError.
    """
    if len(ats) <= 1:
        return ends.barriers(admin, ats, timeout_seconds)
    found = ends.at_rest(admin, ats, timeout_seconds)
    if found is not None:
        return found
    wait = Wait(timeout_seconds, _DOING, _PAUSE_SECONDS, _PAUSE_SECONDS)
    try:
        before = loads.jobs()
        asked = {job for job, complete in before.items() if not complete}
        entries = _known(loads, asked)
        while True:
            found = ends.barriers(admin, ats, timeout_seconds)
            after = loads.jobs()
            asked |= after.keys() - before.keys()
            entries_before, entries = entries, _known(loads, asked)
            if entries == entries_before:
                return found
            if not wait.again("loads are committed"):
                raise UndecidedError(
                    f"{_DOING}: for {wait.waited:.0f} s others were committed again and again. Try again when fewer "
                    f"loads are written as a whole at once."
                )
    except NotPermittedError:
        return ends.barriers(admin, ats, timeout_seconds)


def _known(loads: WholeLoads, jobs: set[str]) -> dict[str, Entries]:
    """By job, those that have any."""
    found = {job: loads.entries(job) for job in sorted(jobs)}
    return {job: entries for job, entries in found.items() if any(entries)}
