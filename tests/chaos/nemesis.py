"""Run a schedule of faults. Each fault is recorded as an operation, so that the timeline shows it as a band."""

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Event

from tests.chaos.faults import Fault, Undo
from tests.chaos.schedule import Planned
from tests.history.operations import INFO, OK
from tests.history.recorder import Recorder

FAULT = "fault"


class Nemesis:
    """Begin and end faults at their times, one after the other, in the thread that calls `run`."""

    def __init__(self, faults: Mapping[str, Fault], recorder: Recorder, calm: Callable[[], None]) -> None:
        self._faults = faults
        self._recorder = recorder
        self._calm = calm
        self._open: list[tuple[float, int, Undo]] = []
        self.struck: Counter[str] = Counter()

    def run(self, planned: Sequence[Planned], seconds: float, stop: Event) -> None:
        """Run the whole schedule. All faults have ended when this returns or raises."""
        began = time.monotonic()
        try:
            for each in planned:
                self._until(each.begin, began, stop)
                if stop.is_set():
                    return
                self._begin(each)
            self._until(seconds, began, stop)
        finally:
            while self._open:
                self._end()
            self._calm()

    def _until(self, moment: float, began: float, stop: Event) -> None:
        while self._open and self._open[0][0] <= moment:
            stop.wait(max(0.0, self._open[0][0] - (time.monotonic() - began)))
            self._end()
            if not self._open:
                self._calm()
        stop.wait(max(0.0, moment - (time.monotonic() - began)))

    def _begin(self, planned: Planned) -> None:
        number = self._recorder.start(FAULT, {"kind": planned.kind})
        struck = self._faults[planned.kind].begin(random.Random(planned.seed), planned.end - planned.begin)
        if struck is None:
            self._recorder.finish(number, INFO, {"target": ""})
            return
        target, undo = struck
        self.struck[planned.kind] += 1

        def end() -> None:
            undo()
            self._recorder.finish(number, OK, {"target": target})

        heapq.heappush(self._open, (planned.end, number, end))

    def _end(self) -> None:
        heapq.heappop(self._open)[-1]()
