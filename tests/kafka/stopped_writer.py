"""A process that prints ``here`` at a step, waits there for a line on stdin, and prints its outcome at the end.

Arguments: bootstrap servers, topic, transaction timeout in milliseconds, step, expected offsets. The step is one of
`STEPS` in the job's second chunk, or ``plan``. At ``plan``, the process runs the whole job and stops before it
records the plan.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.clients import Deadlined, TransactionalProducer
from spark_cas.log.kafka.client.sending import Sending
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.faulted import JOB, planned_writer, spec_of
from tests.support.loads import TEN, run_job
from tests.support.writing import table_of

BEFORE, AFTER = True, False

STEPS: dict[str, tuple[Any, str, bool]] = {
    "begin": (TransactionalProducer, "begin", BEFORE),
    "produced": (Sending, "arrive", AFTER),
    "ledger": (Deadlined, "result", AFTER),
    "commit": (TransactionalProducer, "commit", BEFORE),
    "committed": (TransactionalProducer, "commit", AFTER),
}
"""By step, a class, its function, and whether the writer stops before or after the call."""


def say(line: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def wait_at(home: Any, name: str, *, before: bool) -> None:
    """Print ``here`` before or after each call of a function, and wait for a line on stdin."""
    function: Callable[..., Any] = getattr(home, name)

    def waiting(*arguments: Any, **named: Any) -> Any:
        if before:
            say("here")
            sys.stdin.readline()
        result = function(*arguments, **named)
        if not before:
            say("here")
            sys.stdin.readline()
        return result

    setattr(home, name, waiting)


def main() -> None:
    """Append two chunks, or run the job."""
    servers, topic, timeout_ms, step, expected = sys.argv[1:]
    # No request may outlast the transaction.
    spec = replace(spec_of(servers, topic, request_seconds=1.0), transaction_timeout_ms=int(timeout_ms))
    if step == "plan":
        plan(spec)
    else:
        append(spec, step, expected)


def append(spec: KafkaSpec, step: str, expected: str) -> None:
    with KafkaLog(spec) as log:
        job = planned_writer(log, expected=expected)
        job.must_append(*"ab")
        home, name, before = STEPS[step]
        wait_at(home, name, before=before)
        say(type(job.append(table_of("xyz"))).__name__)


def plan(spec: KafkaSpec) -> None:
    wait_at(KafkaLog, "record_plan", before=BEFORE)
    with KafkaLog(spec) as log:
        say(str(run_job(log, JOB, TEN, run="stopped").rows))


if __name__ == "__main__":
    main()
