"""The object log in a local directory satisfies the contract."""

from pathlib import Path
from uuid import uuid4

import pytest

from spark_cas.log.backend import Backend
from spark_cas.log.objects import ObjectLog
from spark_cas.log.spec import LogSpec
from tests.contract.base import NewBackend
from tests.contract.log_contract import LogContract, StepContract
from tests.objects.places import reopened

_: type[Backend] = ObjectLog


class OnLocal:
    rounds = 60
    examples = 20

    @pytest.fixture
    def new_backend(self, tmp_path: Path) -> NewBackend:
        return lambda: ObjectLog(LogSpec.parse(str(tmp_path / uuid4().hex)))

    reopen = staticmethod(reopened)


class TestLocal(OnLocal, StepContract):
    """Each operation, with the files of a directory."""


@pytest.mark.full
class TestAllLocal(OnLocal, LogContract):
    """All tests. Jobs only use those operations, and `make test` runs this contract in memory."""
