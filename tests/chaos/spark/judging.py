"""Check a run with a stream: the properties of `check_log`, and one more.

18. Each row of a stream's source is in the log, and the rows of each partition are in the order of the source.
    (Property 2 covers duplicates.)
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.history.check_log import check_log
from tests.history.jobs import jobs_of
from tests.history.operations import Operation
from tests.history.records import Found
from tests.history.violation import Violation

STREAMED = 18
STREAMER = "streamer"


def judge(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """Return all violations. The source rows of a partition are those of the streamer's appends, in their order."""
    return [*check_log(history, log), *streamed(history, log)]


def streamed(history: Sequence[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """Return the violations of property 18 alone."""
    jobs = jobs_of(each for each in history if each.process == STREAMER)
    violations = []
    for partition, found in log.items():
        source = [record for name in sorted(jobs) for record in jobs[name].records.get(partition, ())]
        places = {record: place for place, record in enumerate(source)}
        held = [places[each.record] for each in found if each.record in places]
        missing = len(source) - len(set(held))
        if missing:
            violations.append(Violation(STREAMED, f"partition {partition}: {missing} rows of the source are missing"))
        misplaced = next((source[at] for before, at in pairwise(held) if at < before), None)
        if misplaced is not None:
            text = f"partition {partition}: {misplaced} follows rows that are after it in the source"
            violations.append(Violation(STREAMED, text))
    return violations
