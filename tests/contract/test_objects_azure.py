"""The object log over the Azure API keeps the contract."""

import pytest

from spark_cas.log.objects import ObjectLog
from spark_cas.log.protocol import Backend
from spark_cas.testing.contract import LogContract
from spark_cas.testing.contract.base import NewBackend
from tests.objects.places import reopened
from tests.objects.servers import Served

_: type[Backend] = ObjectLog


@pytest.mark.azure
class TestAzure(LogContract):
    rounds = 20
    examples = 5

    @pytest.fixture
    def new_backend(self, azure: Served) -> NewBackend:
        return azure.new_log

    reopen = staticmethod(reopened)
