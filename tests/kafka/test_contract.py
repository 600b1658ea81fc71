"""The contract of every backend, on a real broker."""

import uuid

import pytest

from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.protocol import Backend
from spark_cas.testing.contract import LogContract
from spark_cas.testing.contract.base import NewBackend
from spark_cas.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


class TestKafkaLog(LogContract):
    """A topic on one broker."""

    rounds = 20
    examples = 5
    crashes = 2
    claims_fence = True
    trims_whole_chunks = False

    @pytest.fixture
    def new_backend(self, broker: KafkaBroker) -> NewBackend:
        return lambda: KafkaLog(KafkaSpec(broker.bootstrap, f"t-{uuid.uuid4().hex[:12]}", claim_timeout_ms=20_000))

    def reopen(self, backend: Backend) -> Backend:
        assert isinstance(backend, KafkaLog)
        return KafkaLog(backend.spec)
