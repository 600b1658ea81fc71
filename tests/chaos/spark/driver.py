"""A driver of Spark as a client: it is struck once it is at work."""

from collections.abc import Mapping, Sequence

from tests.chaos.processes import ClientProcess
from tests.chaos.world import World


class DriverProcess(ClientProcess):
    """Well once it has begun an operation since it was started: one that is still on its way has nothing to lose."""

    def __init__(
        self, name: str, world: World, module: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        super().__init__(name, world.folder, module, arguments, environment)
        self._history = world.history_of(name)
        self._before = 0

    @property
    def is_well(self) -> bool:
        return super().is_well and self._size > self._before

    def start(self) -> None:
        self._before = self._size
        super().start()

    @property
    def _size(self) -> int:
        return self._history.stat().st_size if self._history.exists() else 0
