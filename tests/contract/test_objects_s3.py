"""The object log satisfies the contract on the S3 API, of moto and of a gateway that keeps objects in a folder."""

import pytest

from spark_cas.log.backend import Backend
from spark_cas.log.objects import ObjectLog
from tests.contract.base import NewBackend
from tests.contract.log_contract import LogContract, StoreContract
from tests.objects.places import reopened
from tests.objects.servers import Served

_: type[Backend] = ObjectLog


class OnS3:
    rounds = 10
    examples = 3

    @pytest.fixture
    def new_backend(self, s3: Served) -> NewBackend:
        return s3.new_log

    reopen = staticmethod(reopened)


@pytest.mark.s3
class TestS3(OnS3, StoreContract):
    """The tests in which stores may differ."""


@pytest.mark.s3
@pytest.mark.full
class TestAllOnS3(OnS3, LogContract):
    """All tests. The others combine the same steps, and `make test` runs them in memory."""

    # The job dies between calls of the protocol, which does not depend on the store. The log in memory covers
    # this test.
    test_a_job_killed_at_any_call_ends_with_exactly_its_input = None  # type: ignore[assignment]


@pytest.mark.s3
@pytest.mark.full
class TestAllOnVersity(TestAllOnS3):
    """The same tests on the Versity S3 gateway."""

    @pytest.fixture
    def new_backend(self, versity: Served) -> NewBackend:
        return versity.new_log
