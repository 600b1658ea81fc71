"""A run: a place, clients and a nemesis for some time; then all faults end, all is read, and all is checked."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.backend import Backend
from spark_cas.testing.history import Found, Operation, Recorder, Violation, read_history
from spark_cas.testing.kafka_broker.waiting import wait_until
from tests.chaos.aborting import AbortWhole
from tests.chaos.expanding import Expand
from tests.chaos.faults import Fault, Victim
from tests.chaos.nemesis import FAULT, Nemesis
from tests.chaos.place import Place
from tests.chaos.places import PLACES, STORES
from tests.chaos.reader import records_of
from tests.chaos.schedule import Planned, schedule

EXPAND, ABORT = "expand", "abort-whole"
NOT_CALM = 0
"""The number of a violation that no checker of histories finds: something did not end, or ended in a defect."""
START_SECONDS = 300.0
"""Of those clients that are slowest to begin: a driver of Spark and its executors, on a busy machine."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    backend: str
    seed: int
    seconds: float
    chosen: Collection[str]
    """The kinds of faults that were asked for; none for all."""
    sessions: int
    planned: Sequence[Planned]
    history: Sequence[Operation]
    log: Mapping[int, Sequence[Found]]
    struck: Counter[str]
    violations: Sequence[Violation]

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """Operations of clients by name and what was told."""
        return Counter((each.name, each.outcome) for each in self.history if each.name not in (FAULT, EXPAND))

    @property
    def kinds(self) -> Counter[str]:
        """What those that did not go well were told."""
        return Counter(str(each.result["kind"]) for each in self.history if "kind" in each.result)


def run(
    backend: str, seed: int, seconds: float, folder: Path, *, kinds: Collection[str] = (), sessions: int = 1
) -> Outcome:
    """Run chaos for so long, with a seed and faults of some kinds, or all; its histories are in an empty folder then.

    ``sessions`` is how many operations a client of one of `STORES` has under way at once.

    Raises ValueError for a kind that the backend cannot have, and what else is a defect of the rig; what is one of
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
            # Once in the middle, so that there is a before and an after; whatever else goes on then.
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
    """Start the clients and run the schedule, unless one of them complains; how often each fault struck."""
    with Recorder(history / "nemesis.jsonl", "nemesis") as recorder:
        nemesis = Nemesis(faults, recorder, place.calm)
        stopping = Event()
        everybody = [*place.servers, *place.clients]
        _watch(everybody, stopping)
        for each in everybody:
            each.start()
        # A process is seconds on its way to its first operation: faults before that would strike nothing.
        wait_until(
            lambda: stopping.is_set() or _have_begun(everybody, history),
            START_SECONDS,
            lambda: "the clients did not begin",
        )
        nemesis.run(planned, seconds, stopping)
        stopping.set()
    return nemesis.struck


def _have_begun(clients: Sequence[Victim], history: Path) -> bool:
    files = [history / f"{each.name}.jsonl" for each in clients]
    return all(file.exists() and file.stat().st_size for file in files)


def _watch(clients: Sequence[Victim], stopping: Event) -> None:
    """The run is over when a client has ended by itself: `end` tells what it complains of."""

    def watch() -> None:
        while not stopping.wait(0.2):
            if any(each.complaint for each in clients):
                stopping.set()

    Thread(target=watch, name="watch", daemon=True).start()


def finished(expand: Expand, abort: AbortWhole) -> list[Violation]:
    """Finish what was begun beside the clients, and tell what could not be; a healed place lets it."""
    abort.finish()
    try:
        expand.finish()
    except ConditionalLogError as error:
        return [Violation(NOT_CALM, f"the expansion that was begun cannot be finished: {error}")]
    return []


def end(place: Place, stop: Path) -> list[Violation]:
    """Have all clients end. Those that were killed ask once more for what they did not hear the end of."""
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
