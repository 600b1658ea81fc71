"""The contract of every backend, on a real broker."""

import uuid

import pytest

from spark_cas.log.backend import Backend
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.contract.base import NewBackend
from tests.contract.crashing import CrashContract
from tests.contract.log_contract import JobContract, StepContract
from tests.contract.whole import WholeContract
from tests.contract.whole_at_once import WholeAtOnceContract
from tests.contract.whole_streaming import WholeStreamContract
from tools.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


class OnKafka:
    rounds = 10
    examples = 3
    crashes = 2
    claims_fence = True
    trims_whole_chunks = False

    @pytest.fixture(autouse=True)
    def _short_request_timeout(self, set_timing):
        """Read for only 1.5 s, half of this timeout, to confirm that a topic or an offset does not exist."""
        set_timing(longest_request=3.0)

    @pytest.fixture
    def new_backend(self, broker: KafkaBroker) -> NewBackend:
        return lambda: KafkaLog(
            KafkaSpec(broker.bootstrap, f"t-{uuid.uuid4().hex[:12]}", open_transaction_wait_ms=20_000)
        )

    def reopen(self, backend: Backend) -> Backend:
        assert isinstance(backend, KafkaLog)
        return KafkaLog(backend.spec)


class TestKafkaLog(OnKafka, StepContract, CrashContract):
    """The contract of each operation, and of jobs that crash at any call."""

    # One case for each operation, time and mode. Only the full suite runs these; tests with any schedule of crashes
    # remain.
    test_a_job_killed_at_any_call_ends_with_exactly_its_input = None  # type: ignore[assignment]


class WholeLoadsOnKafka(OnKafka, WholeContract, WholeAtOnceContract, WholeStreamContract):
    """A commit group is one transaction, open in the process that appends to it."""

    # A writer with expected offsets waits until the transaction ends or times out: see faults/test_whole_load.py.
    test_readers_get_no_metadata_of_invisible_rows = None  # type: ignore[assignment]
    test_writer_aborts_an_overdue_load = None  # type: ignore[assignment]
    test_of_loads_that_expect_the_same_at_most_one_is_visible = None  # type: ignore[assignment]
    # A transaction cannot reserve a partition without a record in it.
    test_named_partition_without_rows_is_checked_at_the_commit = None  # type: ignore[assignment]


class TestWholeLoadsOnKafka(WholeLoadsOnKafka):
    """The contract of atomic loads, without the matrices of kills at each step: see faults/test_whole_load.py."""

    test_killed_at_any_step_it_is_nothing_and_then_all = None  # type: ignore[assignment]
    test_a_batch_killed_at_any_step_is_nothing_and_then_all = None  # type: ignore[assignment]


@pytest.mark.full
class TestAllWholeLoadsOnKafka(WholeLoadsOnKafka):
    """The whole contract of atomic loads."""


@pytest.mark.full
class TestJobsOnKafka(OnKafka, JobContract):
    """Jobs only use those operations. `make test` runs this contract in memory."""
