"""The contract of every backend, on a real broker."""

import uuid

import pytest

from spark_cas.log.backend import Backend
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.testing.contract import JobContract, StepContract
from spark_cas.testing.contract.base import NewBackend
from spark_cas.testing.contract.crashing import CrashContract
from spark_cas.testing.contract.whole import WholeContract
from spark_cas.testing.contract.whole_at_once import WholeAtOnceContract
from spark_cas.testing.contract.whole_streaming import WholeStreamContract
from spark_cas.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


class OnKafka:
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


class TestKafkaLog(OnKafka, StepContract, CrashContract):
    """What each step promises; of jobs, that they end with just their input wherever they crash."""

    # One row for each call and side: any schedule of them, which stays, is what the whole suite adds rows to.
    test_a_job_killed_at_any_call_ends_with_exactly_its_input = None  # type: ignore[assignment]


class TestWholeLoadsOnKafka(OnKafka, WholeContract, WholeAtOnceContract, WholeStreamContract):
    """A group is one transaction, open in the process that appends to it."""

    # Whoever expects something waits until a transaction ends, or its time is over: see test_whole.py.
    test_what_readers_do_not_see_they_are_not_told_of = None  # type: ignore[assignment]
    test_who_finds_it_in_the_way_after_its_time_aborts_it = None  # type: ignore[assignment]
    test_of_loads_that_expect_the_same_at_most_one_is_visible = None  # type: ignore[assignment]
    # No transaction holds a place without a record.
    test_what_it_names_and_has_no_rows_for_holds_in_the_same_step = None  # type: ignore[assignment]


@pytest.mark.full
class TestJobsOnKafka(OnKafka, JobContract):
    """Jobs do no more than take those steps: in a directory and in memory `make test` runs them too."""
