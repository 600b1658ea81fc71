"""What a run of chaos is given: a log, those who use it, the faults it can have, and who judges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_cas.log.backend import Backend
from spark_cas.testing.history import Found, Operation, Violation
from tests.chaos.faults import Fault, Victim
from tests.chaos.granted import judge_log

Judge = Callable[[Sequence[Operation], Mapping[int, Sequence[Found]]], Sequence[Violation]]
"""Says what is wrong, from the history and each partition of the log to its end."""


@dataclass(frozen=True)
class Place:
    """A log under chaos. ``clients`` and ``servers`` are not started yet."""

    clients: list[Victim]
    faults: Mapping[str, Fault]
    open: Callable[[], Backend]
    """The log past all faults."""
    calm: Callable[[], None] = lambda: None
    """Called whenever no fault is going on."""
    heal: Callable[[], None] = lambda: None
    """Called at the end: returns once all is well again."""
    servers: Sequence[Victim] = ()
    """What clients ask in between: they are needed until all clients have ended."""
    is_shared: bool = True
    """Whether others may add partitions to the log and abort loads in it meanwhile."""
    judge: Judge = judge_log
    end_seconds: float = 90.0
    """Within it each client ends what it has under way once all faults are over: three patiences and more."""
