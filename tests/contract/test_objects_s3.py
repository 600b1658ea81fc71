"""The object log over the S3 API keeps the contract."""

import pytest

from spark_cas.log.backend import Backend
from spark_cas.log.objects import ObjectLog
from spark_cas.testing.contract import LogContract, StoreContract
from spark_cas.testing.contract.base import NewBackend
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
    """Where stores differ."""


@pytest.mark.s3
@pytest.mark.full
class TestAllOnS3(OnS3, LogContract):
    """The rest does no more than take those steps: in a directory and in memory `make test` runs it too."""

    # It dies between the calls of the protocol, where all stores are alike: a directory and memory show that.
    test_a_job_killed_at_any_call_ends_with_exactly_its_input = None  # type: ignore[assignment]
