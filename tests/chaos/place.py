"""The parts of a chaos run: a log, its clients, the possible faults, and the function that checks the result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_cas.log.backend import Backend
from tests.chaos.faults import Fault, Victim
from tests.chaos.locked import judge_log
from tests.history.operations import Operation
from tests.history.records import Found
from tests.history.violation import Violation

Judge = Callable[[Sequence[Operation], Mapping[int, Sequence[Found]]], Sequence[Violation]]
"""Return the violations, given the history and the records of each partition up to its end."""


@dataclass(frozen=True)
class Place:
    """A log under chaos. ``clients`` and ``servers`` have not been started yet."""

    clients: list[Victim]
    faults: Mapping[str, Fault]
    open: Callable[[], Backend]
    """Opens the log without any fault."""
    calm: Callable[[], None] = lambda: None
    """The run calls it whenever no fault is active."""
    heal: Callable[[], None] = lambda: None
    """The run calls it at the end; it returns when everything has recovered."""
    servers: Sequence[Victim] = ()
    """The processes that clients send requests to. They have to run until all clients have ended."""
    is_shared: bool = True
    """Whether the run may add partitions to the log and abort its loads."""
    judge: Judge = judge_log
    end_seconds: float = 90.0
    """After the last fault, each client must complete its operations within this time: more than three retry
    timeouts."""
