"""Check that no two loads held the load lock of a partition at the same time: property 17.

The check does not need the log.

The load lock only prevents conflicts between loads, and no append depends on it. A broken lock therefore leaves no
trace in the log.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.history.check_log import check_log
from tests.history.jobs import jobs_of
from tests.history.operations import Operation
from tests.history.records import Found
from tests.history.violation import Violation

LOCKED_ALONE = 17
"""The next number after 16, which is Porcupine's."""
HELD = "held_ns"
"""A key in the result of an attempt: the earliest and latest time at which the load certainly held the lock (ns)."""


def judge_log(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """Return all violations of a log, and those of the load lock."""
    return [*check_log(history, log), *_locked_at_once(history)]


def _locked_at_once(history: Sequence[Operation]) -> Iterator[Violation]:
    """Yield the loads that held the load lock of a partition at the same time.

    Only loads with a single attempt count: another attempt takes over the lock of its job, and releases it for both.
    """
    held: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for each in jobs_of(history).values():
        if len(each.attempts) == 1 and HELD in each.attempts[0].result:
            since, until = each.attempts[0].result[HELD]
            for partition in each.expected:
                held[partition].append((since, until, each.name))
    for partition, spans in held.items():
        latest, by = -1, ""
        for since, until, job in sorted(spans):
            if since < latest:
                told = f"jobs {by} and {job} had a lock for partition {partition} at the same time"
                yield Violation(LOCKED_ALONE, told)
            if until > latest:
                latest, by = until, job
