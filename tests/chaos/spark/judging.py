"""Who judges a run with a stream: the checker of logs, and one property more.

18. Each row of a stream's source is there, and in each partition they lie in the order of the source. (That none is
    there twice is property 2.)
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from spark_cas.testing.history import Found, Operation, Violation, check_log
from spark_cas.testing.history.jobs import jobs_of

STREAMED = 18
STREAMER = "streamer"


def judge(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """All that is wrong. The source's rows of a partition are those of the streamer's appends, in their order."""
    return [*check_log(history, log), *streamed(history, log)]


def streamed(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """Property 18 alone."""
    jobs = jobs_of(each for each in history if each.process == STREAMER)
    violations = []
    for partition, found in log.items():
        source = [record for name in sorted(jobs) for record in jobs[name].records.get(partition, ())]
        places = {record: place for place, record in enumerate(source)}
        held = [places[each.record] for each in found if each.record in places]
        missing = len(source) - len(set(held))
        if missing:
            violations.append(Violation(STREAMED, f"partition {partition}: {missing} rows of the source are missing"))
        behind = next((source[at] for before, at in pairwise(held) if at < before), None)
        if behind is not None:
            told = f"partition {partition}: {behind} lies behind rows that the source has later"
            violations.append(Violation(STREAMED, told))
    return violations
