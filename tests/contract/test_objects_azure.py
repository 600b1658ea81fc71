"""The object log satisfies the contract on the Azure API."""

import pytest

from spark_cas.log.backend import Backend
from spark_cas.log.objects import ObjectLog
from tests.contract.base import NewBackend
from tests.contract.log_contract import LogContract, StoreContract
from tests.objects.places import reopened
from tests.objects.servers import Served

_: type[Backend] = ObjectLog


class OnAzure:
    rounds = 10
    examples = 3

    @pytest.fixture
    def new_backend(self, azure: Served) -> NewBackend:
        return azure.new_log

    reopen = staticmethod(reopened)


@pytest.mark.azure
class TestAzure(OnAzure, StoreContract):
    """The tests in which stores may differ."""


@pytest.mark.azure
@pytest.mark.full
class TestAllOnAzure(OnAzure, LogContract):
    """All tests. The others combine the same steps, and `make test` runs them in memory."""

    # The job dies between calls of the protocol, which does not depend on the store. The log in memory covers
    # this test.
    test_a_job_killed_at_any_call_ends_with_exactly_its_input = None  # type: ignore[assignment]
