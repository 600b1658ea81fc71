"""Jobs under faults: run as Spark runs them, by clients that soon give up waiting, and looked at past the fault."""

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
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.testing.loads import LIMITS, Rows, load
from spark_cas.testing.writing import JobWriter, claim_of
from tests.kafka.clients import SECONDS, committed_values
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, Where, naming

JOB = "job"
APIS = [
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
]
"""The requests of a writer, in their order."""
LOST = [Fault.DROP_RESPONSE, Fault.RESET_BEFORE_REQUEST, Fault.RESET_BEFORE_RESPONSE]
RETRIES = 8
"""How often a job is run again, as Spark runs a task again, before its test fails."""

_REQUEST_SECONDS = 2.0
"""A fault costs so much, and a busy broker is no fault."""
_END = ExpectedOffsets.parse("end")

Item = TypeVar("Item")
Result = TypeVar("Result")


def spec_of(address: str, topic: str, *, request_seconds: float = _REQUEST_SECONDS, **settings: str) -> KafkaSpec:
    """A topic through an address, with a registry of its own, and times as short as a test wants.

    They keep the ratios of those in use: 1 to 6 to 12 for a request, a transaction and the patience. Underscores in
    the names of client settings stand for dots.
    """
    milliseconds = int(1000 * request_seconds)
    given = {"socket.timeout.ms": f"{milliseconds}", "message.timeout.ms": f"{12 * milliseconds}"}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    return KafkaSpec(
        address,
        topic,
        prefix=topic,
        client_options=tuple(given.items()),
        claim_timeout_ms=12 * milliseconds,
        transaction_timeout_ms=6 * milliseconds,
    )


def by_writer(spec: KafkaSpec) -> Where:
    """Requests of whoever writes partition 0 under a claim. They name the transactional id."""
    return naming(spec.transactional_id(0, None))


def planned_writer(log: Backend, job: str = JOB, expected: str = "end") -> JobWriter:
    """A writer of partition 0 whose plan is recorded."""
    return JobWriter(log, pin_plan(log, job, ExpectedOffsets.parse(expected)))


def run_as_spark_does(
    spec: KafkaSpec,
    rows: Rows,
    *,
    limits: ChunkLimits = LIMITS,
    decorate: Callable[[KafkaLog], Backend] = lambda log: log,
) -> list[ConditionalLogError]:
    """Run a job again, each time with new clients, until it is complete. Returns what stopped its earlier runs.

    ``decorate`` puts faults around the log of the first run.
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
    """A job from its plan to its completion, as Spark runs it where it gives a task one attempt."""
    with KafkaLog(spec) as log:
        plan = pin_plan(log, JOB, _END)
        complete_job(log, plan, load(log, plan, rows, task="run/0", limits=LIMITS, wait=1.0))


def for_a_while(
    stop: Callable[[], None], go_on: Callable[[], None], seconds: float, threads: list[Thread]
) -> Callable[[], None]:
    """What stops a broker, and lets it go on after some seconds; the thread that does so is added to ``threads``."""

    def later() -> None:
        time.sleep(seconds)
        go_on()

    def strike() -> None:
        stop()
        threads.append(Thread(target=later))
        threads[-1].start()

    return strike


def progress_now(spec: KafkaSpec) -> Progress | None:
    """The ledger entry of the job in partition 0, once whatever its writers left open is ended by a new claim."""
    with KafkaLog(spec) as other:
        plan = other.plan(JOB)
        assert plan is not None
        return claim_of(other, 0, plan).progress


def require_truth(
    spec: KafkaSpec, outcome: Outcome | StorageError, before: Sequence[str], mine: Sequence[str], *, foreign: int = 0
) -> None:
    """Whether an outcome tells what became of a chunk of partition 0, now and for ever; so must the ledger.

    An error is a refusal as well. ``spec`` leads past the fault. A new owner ends whatever the writer left open, so
    nothing can come later. So many values are ``foreign``, and not the job's.
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
    """Call with each item in a thread of its own: most of what happens under faults is waiting."""
    items = list(items)
    with ThreadPoolExecutor(len(items)) as threads:
        futures = [threads.submit(call, item) for item in items]
        for future in as_completed(futures, 3 * SECONDS):
            future.result()  # the first that fails is the one to be told of
        return [future.result() for future in futures]
