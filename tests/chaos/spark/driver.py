"""A Spark driver as a client. Faults hit it only after it has begun an operation."""

from collections.abc import Mapping, Sequence

from tests.chaos.processes import ClientProcess
from tests.chaos.world import World


class DriverProcess(ClientProcess):
    """A driver process.

    `is_well` is False until it has begun an operation since its start: before that, a fault has no effect.
    """

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
