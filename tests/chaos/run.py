"""A chaos run: start the clients, inject faults for some time, end all faults, read the log, and check everything."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.backend import Backend
from tests.chaos.aborting import AbortWhole
from tests.chaos.expanding import Expand
from tests.chaos.faults import Fault, Victim
from tests.chaos.nemesis import FAULT, Nemesis
from tests.chaos.place import Place
from tests.chaos.places import PLACES, STORES
from tests.chaos.reader import records_of
from tests.chaos.schedule import Planned, schedule
from tests.history.operations import Operation, read_history
from tests.history.recorder import Recorder
from tests.history.records import Found
from tests.history.violation import Violation
from tools.kafka_broker.waiting import wait_until

EXPAND, ABORT = "expand", "abort-whole"
NOT_CALM = 0
"""The number of a violation that the history checkers do not find: a client did not end, or ended with a defect."""
START_SECONDS = 300.0
"""The time for the slowest clients to start: a Spark driver and its executors, on a busy machine."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    backend: str
    seed: int
    seconds: float
    chosen: Collection[str]
    """The requested types of faults; empty for all."""
    sessions: int
    planned: Sequence[Planned]
    history: Sequence[Operation]
    log: Mapping[int, Sequence[Found]]
    struck: Counter[str]
    violations: Sequence[Violation]

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """Count the operations of clients by name and outcome."""
        return Counter((each.name, each.outcome) for each in self.history if each.name not in (FAULT, EXPAND))

    @property
    def kinds(self) -> Counter[str]:
        """Count the errors of operations by kind."""
        return Counter(str(each.result["kind"]) for each in self.history if "kind" in each.result)


def run(
    backend: str, seed: int, seconds: float, folder: Path, *, kinds: Collection[str] = (), sessions: int = 1
) -> Outcome:
    """Run chaos for ``seconds`` with a seed and some or all types of faults.

    The histories go to ``folder``, which must be empty.

    ``sessions`` is the number of concurrent operations of a client, for a backend in `STORES`.

    Raises ValueError for a type that the backend does not have. A defect of the test rig is raised too; a defect of
    the log is a violation.
    """
    opened = STORES[backend](folder, seed, sessions) if backend in STORES else PLACES[backend](folder, seed)
    with opened as place:
        expand, abort = Expand(place.open), AbortWhole(folder / "history", place.open)
        faults = {**place.faults, ABORT: abort, EXPAND: expand} if place.is_shared else place.faults
        possible = faults.keys() - {EXPAND}
        if not possible >= {*kinds}:
            raise ValueError(f"faults of {backend} are {', '.join(sorted(possible))}")
        planned = schedule(seed, seconds, sorted(kinds or possible))
        if place.is_shared:
            # Add a partition in the middle of the run, so that there is a time before and after. Other faults may be
            # active.
            planned += [Planned(seconds / 2, seconds / 2, EXPAND, seed)]
            planned.sort(key=lambda each: (each.begin, each.kind))
        try:
            struck = _strike(place, faults, planned, seconds, folder / "history")
            place.heal()
            unfinished = finished(expand, abort)
            violations = [*unfinished, *end(place, folder / "stop")]
        except BaseException:
            for each in [*place.clients, *place.servers]:
                each.kill()
            raise
        log, unread = _read(place)
        history = read_history(folder / "history")
        found = [*violations, *unread, *place.judge(history, log)]
    return Outcome(backend, seed, seconds, kinds, sessions, planned, history, log, struck, found)


def _strike(
    place: Place, faults: Mapping[str, Fault], planned: Sequence[Planned], seconds: float, history: Path
) -> Counter[str]:
    """Start the clients, run the schedule until a client complains, and return the number of faults by type."""
    with Recorder(history / "nemesis.jsonl", "nemesis") as recorder:
        nemesis = Nemesis(faults, recorder, place.calm)
        stopping = Event()
        everybody = [*place.servers, *place.clients]
        _watch(everybody, stopping)
        for each in everybody:
            each.start()
        # A process needs seconds until its first operation: earlier faults would have no effect.
        wait_until(
            lambda: stopping.is_set() or _have_begun(everybody, history),
            START_SECONDS,
            lambda: "the clients did not start",
        )
        nemesis.run(planned, seconds, stopping)
        stopping.set()
    return nemesis.struck


def _have_begun(clients: Sequence[Victim], history: Path) -> bool:
    files = [history / f"{each.name}.jsonl" for each in clients]
    return all(file.exists() and file.stat().st_size for file in files)


def _watch(clients: Sequence[Victim], stopping: Event) -> None:
    """End the run when a client has exited without a fault. `end` reports its complaint."""

    def watch() -> None:
        while not stopping.wait(0.2):
            if any(each.complaint for each in clients):
                stopping.set()

    Thread(target=watch, name="watch", daemon=True).start()


def finished(expand: Expand, abort: AbortWhole) -> list[Violation]:
    """Complete the expansion and the abort after the place is healed; report an expansion that fails."""
    abort.finish()
    try:
        expand.finish()
    except ConditionalLogError as error:
        return [Violation(NOT_CALM, f"the expansion that was begun cannot be finished: {error}")]
    return []


def end(place: Place, stop: Path) -> list[Violation]:
    """Make all clients end. Killed clients are restarted, and retry their operations without a known result."""
    for each in [*place.servers, *place.clients]:
        each.thaw()
        each.start()
    stop.touch()
    deadline = time.monotonic() + place.end_seconds
    late = [each for each in place.clients if not each.wait(max(0.0, deadline - time.monotonic()))]
    told = [f"{each.name} did not end within {place.end_seconds:.0f} s of the last fault" for each in late]
    told += [each.complaint for each in [*place.servers, *place.clients] if each.complaint]
    for each in [*late, *place.servers]:
        each.kill()
    return [Violation(NOT_CALM, each) for each in told]


def _read(place: Place) -> tuple[dict[int, list[Found]], list[Violation]]:
    try:
        with place.open() as log:
            return _all_of(log), []
    except ConditionalLogError as error:
        return {}, [Violation(NOT_CALM, f"the log cannot be read to its end: {error}")]


def _all_of(log: Backend) -> dict[int, list[Found]]:
    partitions = range(log.layout().partitions)
    return {
        at: list(records_of(log, at, OffsetRange(bounds.start_offset, bounds.end_offset)))
        for at, bounds in zip(partitions, log.bounds_of(partitions, waiting=True), strict=True)
    }
