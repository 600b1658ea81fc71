"""The object log over the S3 API keeps the contract."""

import pytest

from spark_cas.log.objects import ObjectLog
from spark_cas.log.protocol import Backend
from spark_cas.testing.contract import LogContract
from spark_cas.testing.contract.base import NewBackend
from tests.objects.places import reopened
from tests.objects.servers import Served

_: type[Backend] = ObjectLog


@pytest.mark.s3
class TestS3(LogContract):
    rounds = 20
    examples = 5

    @pytest.fixture
    def new_backend(self, s3: Served) -> NewBackend:
        return s3.new_log

    reopen = staticmethod(reopened)
