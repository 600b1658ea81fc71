"""Run jobs under faults as Spark does, with short timeouts, and verify the results without the fault."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Thread
from typing import TypeVar

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConditionalLogError, FencedError, StorageError, UnknownOutcomeError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Outcome, Unknown
from spark_cas.core.plan import Progress
from spark_cas.log.backend import Backend
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.kafka.clients import SECONDS, committed_values
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, Where, naming
from tests.support.loads import LIMITS, Rows, load
from tests.support.writing import JobWriter, claim_of

JOB = "job"
APIS = [
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
]
"""The requests of a writer, in order."""
LOST = [Fault.DROP_RESPONSE, Fault.RESET_BEFORE_REQUEST, Fault.RESET_BEFORE_RESPONSE]
RETRIES = 8
"""How often a test reruns a job, as Spark reruns a task, before the test fails."""

_REQUEST_SECONDS = 2.0
"""The request timeout in seconds. Each fault costs this much, but a healthy busy broker must respond in time."""
_END = ExpectedOffsets.parse("end")

Item = TypeVar("Item")
Result = TypeVar("Result")


def spec_of(address: str, topic: str, *, request_seconds: float = _REQUEST_SECONDS, **settings: str) -> KafkaSpec:
    """Return the spec of a topic with a separate registry and short timeouts.

    The timeouts keep the ratios of the defaults: 1 to 6 to 12 for a request, a transaction and all retries. The names
    of client settings have underscores instead of dots.
    """
    milliseconds = int(1000 * request_seconds)
    given = {"socket.timeout.ms": f"{milliseconds}", "message.timeout.ms": f"{12 * milliseconds}"}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    return KafkaSpec(
        address,
        topic,
        prefix=topic,
        client_options=tuple(given.items()),
        open_transaction_wait_ms=12 * milliseconds,
        transaction_timeout_ms=6 * milliseconds,
    )


def by_writer(spec: KafkaSpec) -> Where:
    """Select the requests of writers that hold the claim of partition 0: they name its transactional id."""
    return naming(spec.id_of_partition(0, None))


def planned_writer(log: Backend, job: str = JOB, expected: str = "end") -> JobWriter:
    """Return a writer of partition 0 whose plan is recorded."""
    return JobWriter(log, pin_plan(log, job, ExpectedOffsets.parse(expected)))


def run_as_spark_does(
    spec: KafkaSpec,
    rows: Rows,
    *,
    limits: ChunkLimits = LIMITS,
    decorate: Callable[[KafkaLog], Backend] = lambda log: log,
) -> list[ConditionalLogError]:
    """Run a job, each time with new clients, until it completes. Return the errors of the failed runs.

    ``decorate`` wraps the log of the first run to inject faults. After `RETRIES` failed reruns, the last error is
    raised.
    """
    errors: list[ConditionalLogError] = []
    while True:
        with KafkaLog(spec) as plain:
            log = plain if errors else decorate(plain)
            try:
                plan = pin_plan(log, JOB, _END)
                results = load(log, plan, rows, task=f"run-{len(errors)}/0", limits=limits, wait=1.0)
                done = complete_job(log, plan, results)
            except (FencedError, UnknownOutcomeError, StorageError) as error:
                errors.append(error)
                if len(errors) > RETRIES:
                    raise
            else:
                assert done.rows == sum(map(len, rows.values()))
                return errors


def run_once(spec: KafkaSpec, rows: Rows) -> None:
    """Run a job from its plan to its completion, with one attempt per task."""
    with KafkaLog(spec) as log:
        plan = pin_plan(log, JOB, _END)
        complete_job(log, plan, load(log, plan, rows, task="run/0", limits=LIMITS, wait=1.0))


def for_a_while(
    stop: Callable[[], None], go_on: Callable[[], None], seconds: float, threads: list[Thread]
) -> Callable[[], None]:
    """Return a function that stops a broker, and resumes it after ``seconds``.

    A separate thread, which the function adds to ``threads``, resumes the broker.
    """

    def later() -> None:
        time.sleep(seconds)
        go_on()

    def strike() -> None:
        stop()
        threads.append(Thread(target=later))
        threads[-1].start()

    return strike


def progress_now(spec: KafkaSpec) -> Progress | None:
    """Return the job's ledger entry in partition 0, after a new claim has ended the transactions of its writers."""
    with KafkaLog(spec) as other:
        plan = other.plan(JOB)
        assert plan is not None
        return claim_of(other, 0, plan).progress


def require_truth(
    spec: KafkaSpec, outcome: Outcome | StorageError, before: Sequence[str], mine: Sequence[str], *, foreign: int = 0
) -> None:
    """Assert that an outcome and the ledger agree with the committed records of partition 0.

    An error must mean that the chunk is not committed. ``spec`` avoids the fault. A new claim ends the transaction
    that the writer left open, so the records do not change later. ``foreign`` is the number of values that the job
    did not write.
    """
    at_first = committed_values(spec.bootstrap_servers, spec.topic)
    progress = progress_now(spec)
    found = committed_values(spec.bootstrap_servers, spec.topic)
    match outcome:
        case Appended():
            assert at_first == [*before, *mine], f"{outcome}, and not visible"
            assert found == at_first
        case Unknown():
            assert found in ([*before], [*before, *mine]), outcome
        case _:
            assert found == [*before], f"{outcome}, and visible"
    assert (progress.rows if progress else 0) == len(found) - foreign, f"{outcome}, and the ledger counts other rows"


def all_at_once(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function with each item, and return the results.

    Each call has its own thread, because calls under faults mostly wait.
    """
    items = list(items)
    with ThreadPoolExecutor(len(items)) as threads:
        futures = [threads.submit(call, item) for item in items]
        for future in as_completed(futures, 3 * SECONDS):
            future.result()  # raise the first failure
        return [future.result() for future in futures]
