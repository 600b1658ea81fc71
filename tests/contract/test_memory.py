from collections.abc import Callable

import pytest

from spark_cas.log.backend import Backend
from tests.contract.log_contract import LogContract
from tests.support.memory_log import MemoryLog

_: type[Backend] = MemoryLog


class TestMemoryLog(LogContract):
    rounds = 100
    examples = 20

    @pytest.fixture
    def new_backend(self) -> Callable[[], Backend]:
        return MemoryLog

    def reopen(self, backend: Backend) -> Backend:
        return backend
