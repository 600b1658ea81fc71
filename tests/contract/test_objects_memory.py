"""The object log over a store in memory satisfies the contract."""

from uuid import uuid4

import pytest

from spark_cas.log.backend import Backend
from spark_cas.log.objects import ObjectLog
from spark_cas.log.spec import LogSpec
from tests.contract.base import NewBackend
from tests.contract.log_contract import LogContract
from tests.objects.places import reopened

_: type[Backend] = ObjectLog


class TestObjectsInMemory(LogContract):
    rounds = 50
    examples = 20

    @pytest.fixture
    def new_backend(self) -> NewBackend:
        return lambda: ObjectLog(LogSpec.parse(f"memory:///{uuid4().hex}"))

    reopen = staticmethod(reopened)
