"""A writer that ends in the middle of a chunk, killed or by an error of its client.

The next writer resumes after the last committed record (KAFKA-5494). Five requests are in flight, and the load has
several chunks.
"""

import os
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from threading import Timer

import pytest
from confluent_kafka import KafkaError

from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.load.planning import pin_plan
from tests.kafka.clients import SECONDS, committed_values, create_topic
from tests.kafka.faulted import (
    JOB,
    all_at_once,
    by_writer,
    planned_writer,
    progress_now,
    require_truth,
    run_as_spark_does,
    spec_of,
)
from tests.kafka.faults.killed_writer import CHUNK, LIMITS, ONE_BY_ONE, ROWS
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault
from tests.long import full
from tests.support.loads import load
from tests.support.writing import table_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

WRITER = Path(__file__).parent / "killed_writer.py"
COMMITTED = {
    "claim": 0,
    "begin": CHUNK,
    "sent": CHUNK,
    "ledger": CHUNK,
    "produced": CHUNK,
    "commit": CHUNK,
    "committed": 2 * CHUNK,
}
"""The number of committed rows, by the step of the second chunk at which the test killed the writer.

At ``claim``, the writer has not begun a chunk.
"""
SEVENTH = CHUNK + 7
"""The seventh request of the second chunk."""


@contextmanager
def loading(address, topic, step):
    """Run a process that loads, and kill it with SIGKILL at the end."""
    root = Path(__file__).parents[3]
    environment, pipe = {**os.environ, "PYTHONPATH": str(root)}, subprocess.PIPE
    command = [sys.executable, str(WRITER), address, topic, step]
    with subprocess.Popen(command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True) as writer:
        latest = Timer(SECONDS, writer.kill)
        latest.start()
        try:
            yield writer
        finally:
            latest.cancel()
            writer.kill()


def go_on(address, topic):
    """Finish the job with a new writer. Return how many rows were committed before; the ledger must have as many."""
    spec = spec_of(address, topic)
    progress = progress_now(spec)
    found = committed_values(address, topic)
    assert found == ROWS[0][: len(found)]
    assert (progress.rows if progress else 0) == len(found)
    assert run_as_spark_does(spec, ROWS, limits=LIMITS) == []
    assert committed_values(address, topic) == ROWS[0]
    return len(found)


@pytest.mark.parametrize("step", ["sent", "commit", *full("claim", "begin", "ledger", "produced", "committed")])
def test_last_committed_record_decides_after_a_kill_at_each_step(broker, topic, step):
    with loading(broker.bootstrap, topic, step) as writer:
        if step != "claim":
            writer.stdin.write("go on\n")  # to pass the step of the first chunk
            writer.stdin.flush()
            assert writer.stdout.readline() == "here\n"
        assert writer.stdout.readline() == "here\n"
    assert go_on(broker.bootstrap, topic) == COMMITTED[step]


@pytest.mark.parametrize("kind", [Fault.HOLD_REQUEST, *full(Fault.HOLD_RESPONSE)], ids=lambda each: each.name)
def test_late_requests_of_a_killed_writer_have_no_effect(proxied, proxied_topic, kind):
    spec = spec_of(proxied.bootstrap, proxied_topic)
    watched = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, times=None, where=by_writer(spec))
    held = proxied.proxy.add(kind, Api.PRODUCE, nth=SEVENTH, where=by_writer(spec))
    # Five requests can be in flight. The ledger entry may be one of them.
    fourth = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, nth=SEVENTH + 3, where=by_writer(spec))
    with loading(proxied.bootstrap, proxied_topic, "no step"):
        (held if kind is Fault.HOLD_REQUEST else fourth).reached.wait(SECONDS)
    assert watched.most_at_once >= 4 or kind is Fault.HOLD_REQUEST
    assert go_on(proxied.direct, proxied_topic) == CHUNK
    held.release()
    held.answered.wait(SECONDS)
    assert committed_values(proxied.direct, proxied_topic) == ROWS[0]


@pytest.fixture
def ended(monkeypatch):
    """By topic, the fatal error code of each closed client, None if it had no fatal error."""
    close, errors = TransactionalProducer.close, defaultdict(list)

    def closed(producer):
        errors[producer._topic].append(producer.fatal and producer.fatal.code())
        close(producer)

    monkeypatch.setattr(TransactionalProducer, "close", closed)
    return errors


ERRORS = [
    # The broker rejects the request after the last acknowledged one, so the outcome of that one is unknown.
    (Fault.FAIL_RESPONSE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
    (Fault.FAIL_RESPONSE, KafkaError.UNKNOWN_PRODUCER_ID, False),
    # The broker itself rejects the four requests after a lost one.
    (Fault.DROP_REQUEST, KafkaError.NO_ERROR, False),
]


def test_load_resumes_after_each_fatal_client_error(proxied, ended):
    def load_through(case):
        fault, error, _ = case
        topic = create_topic(proxied.direct)
        spec = spec_of(proxied.bootstrap, topic, batch_size=ONE_BY_ONE)
        rule = proxied.proxy.add(fault, Api.PRODUCE, nth=SEVENTH, where=by_writer(spec), error=error)
        with KafkaLog(spec) as log:
            plan = pin_plan(log, JOB, ExpectedOffsets.parse("end"))
            del ended[topic][:]
            (result,) = load(log, plan, ROWS, limits=LIMITS)
            fatal = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER in ended[topic]
        rule.reached.wait(0)
        assert result.progress.rows == len(ROWS[0])
        return committed_values(proxied.direct, topic), fatal

    assert all_at_once(load_through, ERRORS) == [(ROWS[0], fatal) for _, _, fatal in ERRORS]


def test_an_error_that_is_none_or_passes_loses_and_doubles_nothing(proxied):
    """The client gets no offset for a duplicate. After a transient error, it retries, and the broker detects that."""

    def append_through(case):
        error, nth = case
        topic = create_topic(proxied.direct)
        spec = spec_of(proxied.bootstrap, topic, batch_size=ONE_BY_ONE)
        with KafkaLog(spec) as log:
            job = planned_writer(log)
            job.must_append("a")
            failed = proxied.proxy.add(Fault.FAIL_RESPONSE, Api.PRODUCE, nth=nth, where=by_writer(spec), error=error)
            outcome = job.append(table_of(ROWS[0][:CHUNK]))
            failed.reached.wait(0)
        require_truth(spec_of(proxied.direct, topic), outcome, ["a"], ROWS[0][:CHUNK])
        return type(outcome)

    cases = product([KafkaError.DUPLICATE_SEQUENCE_NUMBER, KafkaError.NOT_ENOUGH_REPLICAS], [1, CHUNK])
    assert set(all_at_once(append_through, cases)) == {Appended}
