"""Whether of loads that overlap one at a time had a grant: property 17, for which there is no need to know the log.

Grants keep loads out of each other's way, and no append rests on them: so nothing in the log tells of a broken one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from spark_cas.testing.history import Found, Operation, Violation, check_log
from spark_cas.testing.history.jobs import jobs_of

GRANTED_ALONE = 17
"""16 is Porcupine's."""
HELD = "held_ns"
"""In the result of an attempt at a load that had a grant: from when to when, at least, in nanoseconds."""


def judge_log(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """All that is wrong with a log, and with the grants of its loads."""
    return [*check_log(history, log), *_granted_at_once(history)]


def _granted_at_once(history: Sequence[Operation]) -> Iterator[Violation]:
    """Loads that had a grant for a partition at the same time.

    Those with one attempt alone: another attempt takes the grant of its job over, and ends it for both.
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
                told = f"jobs {by} and {job} had a grant for partition {partition} at the same time"
                yield Violation(GRANTED_ALONE, told)
            if until > latest:
                latest, by = until, job
