"""Connections that break with one to five requests in flight, and deliveries without an offset.

In both cases, rows are stored once and in order.
"""

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Conflict
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append.placement import Landed
from spark_cas.log.kafka.append.transaction import Part, Transactions
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.sending import Reports
from tests.kafka.clients import SECONDS, append, committed_values, create_topic
from tests.kafka.faulted import (
    all_at_once,
    by_writer,
    planned_writer,
    require_truth,
    run_as_spark_does,
    spec_of,
)
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault
from tests.long import full
from tests.support.writing import table_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROWS = [f"{at}" for at in range(300)]
IN_FLIGHT = (5, *full(1, 2, 3, 4))


def one_by_one(proxied, topic, in_flight=5):
    """Return a spec that sends each record in a separate request.

    librdkafka (2.16) sends several requests at once only while they hold few records.
    """
    return spec_of(proxied.bootstrap, topic, batch_size="1", max_in_flight=str(in_flight))


@pytest.fixture
def entered_first(monkeypatch):
    """Write the ledger entry before the records, because it would otherwise be one of the requests in flight."""
    enter, send = Transactions._entering, Transactions._send

    def send_after(self, claim, chunk, bounds, *, last):
        at = OffsetRange(bounds.end_offset, bounds.end_offset + chunk.records.num_rows)
        enter(self, [Part(claim.progress_after(chunk, at), Landed(at), chunk.records.num_rows, 0)])()
        return send(self, claim, chunk, bounds, last=last)

    monkeypatch.setattr(Transactions, "_send", send_after)
    monkeypatch.setattr(Transactions, "_entering", lambda _self, _parts: lambda: None)


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
@pytest.mark.usefixtures("entered_first")
def test_requests_in_flight_are_lost_together(proxied, in_flight):
    def append_through_a_reset(kind):
        topic = create_topic(proxied.direct)
        spec = one_by_one(proxied, topic, in_flight)
        with KafkaLog(spec) as log:
            job = planned_writer(log)
            job.must_append("a")
            watched = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, times=None, where=by_writer(spec))
            held = proxied.proxy.add(kind, Api.PRODUCE, nth=7, where=by_writer(spec))
            last = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, nth=6 + in_flight, where=by_writer(spec))

            def lose():
                held.reached.wait(SECONDS)
                # The proxy reads no request after a held one, and returns no response after a held one.
                if kind is Fault.HOLD_RESPONSE:
                    held.answered.wait(SECONDS)
                    last.reached.wait(SECONDS)
                held.discard()

            outcome, _ = all_at_once(lambda call: call(), [lambda: job.append(table_of(ROWS)), lose])
            assert isinstance(outcome, Appended), outcome
        return committed_values(proxied.direct, topic), watched

    (rows, _), (others, watched) = all_at_once(append_through_a_reset, [Fault.HOLD_REQUEST, Fault.HOLD_RESPONSE])
    assert rows == others == ["a", *ROWS]
    # This many requests were in flight when the connection broke, and the client sent each of them again.
    assert (watched.most_at_once, watched.known) == (in_flight, len(ROWS) + in_flight)


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_a_load_over_connections_that_break_again_and_again(proxied, proxied_topic, in_flight):
    spec = one_by_one(proxied, proxied_topic, in_flight)
    watched = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, times=None, where=by_writer(spec))
    breaking = proxied.proxy.reset_every(40, Api.PRODUCE, where=by_writer(spec))
    limits = ChunkLimits(max_records=120, max_bytes=1_000_000, max_seconds=1_000)
    run_as_spark_does(spec, {0: ROWS}, limits=limits)
    assert breaking.borrow >= 3
    assert min(2, in_flight) <= watched.most_at_once <= in_flight
    assert committed_values(proxied.direct, proxied_topic) == ROWS


# Deliveries without an offset (KIP-192), as a client reports them for duplicate sequence numbers


def without_offsets(monkeypatch, before_report):
    """Remove the offset from every delivery report, after a call of ``before_report`` with the chunk in the log."""
    take = Reports.take

    def strip(reports, count, *_offsets):
        before_report()
        take(reports, count, -1, -1)

    monkeypatch.setattr(Reports, "take", strip)


def test_a_delivery_without_offset_is_proven_by_the_end(monkeypatch, proxied, proxied_topic):
    spec = spec_of(proxied.direct, proxied_topic)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append(*"ab")
        without_offsets(monkeypatch, lambda: None)
        outcome = job.append(table_of("xyz"))
        assert isinstance(outcome, Appended), outcome
        assert not outcome.has_offset
    require_truth(spec, outcome, "ab", "xyz")


def test_a_delivery_without_offset_among_others_records_is_aborted(monkeypatch, proxied, proxied_topic):
    spec = spec_of(proxied.direct, proxied_topic)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append(*"ab")
        barged = [lambda: append(proxied.direct, proxied_topic, "foreign")]
        without_offsets(monkeypatch, lambda: barged.pop()() if barged else None)
        outcome = job.append(table_of("xyz"))
    assert isinstance(outcome, Conflict), outcome
    require_truth(spec, outcome, ["a", "b", "foreign"], "xyz", foreign=1)


def test_aborted_rows_are_counted(monkeypatch, proxied, proxied_topic):
    """Without a check, the writer appends the same chunk again after the record of the other producer."""
    spec = spec_of(proxied.direct, proxied_topic)
    with KafkaLog(spec) as log:
        job = planned_writer(log, expected="none")
        barged = [lambda: append(proxied.direct, proxied_topic, "foreign")]
        without_offsets(monkeypatch, lambda: barged.pop()() if barged else None)
        outcome = job.append(table_of("xyz"))
        assert isinstance(outcome, Appended), outcome
        assert (outcome.attempts, outcome.aborted_rows, outcome.has_offset) == (2, 3, False)
        monkeypatch.undo()
        after = job.must_append("w")
    assert (after.attempts, after.aborted_rows, after.has_offset) == (1, 0, True)
    assert committed_values(proxied.direct, proxied_topic) == ["foreign", *"xyzw"]


def test_others_records_among_ours_do_not_prove_a_commit(monkeypatch, proxied, proxied_topic):
    """Without a check, other records may be among those of the chunk.

    The test drops the commit, which the writer cannot distinguish from a commit with a lost response.
    """
    commit, lost = TransactionalProducer.commit, [KafkaException(KafkaError(KafkaError._TIMED_OUT))]

    def lost_once(producer):
        if lost:
            raise lost.pop()
        commit(producer)

    with KafkaLog(one_by_one(proxied, proxied_topic)) as log:
        job = planned_writer(log, expected="none")
        monkeypatch.setattr(TransactionalProducer, "commit", lost_once)
        held = proxied.proxy.add(Fault.HOLD_REQUEST, Api.PRODUCE, nth=2)

        def barge():
            held.reached.wait(SECONDS)
            append(proxied.direct, proxied_topic, "foreign")
            held.release()

        outcome, _ = all_at_once(lambda call: call(), [lambda: job.append(table_of("xyz")), barge])
    assert isinstance(outcome, Appended), outcome
    assert committed_values(proxied.direct, proxied_topic) == ["foreign", *"xyz"]


def test_a_record_that_lands_just_before_the_first_of_ours_refuses_the_chunk(monkeypatch, proxied, proxied_topic):
    spec = spec_of(proxied.direct, proxied_topic)
    begin = TransactionalProducer.begin

    def begin_late(producer):
        monkeypatch.undo()
        append(proxied.direct, proxied_topic, "foreign")
        begin(producer)

    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append(*"ab")
        monkeypatch.setattr(TransactionalProducer, "begin", begin_late)
        outcome = job.append(table_of("xyz"))
    assert isinstance(outcome, Conflict), outcome
    require_truth(spec, outcome, ["a", "b", "foreign"], "xyz", foreign=1)


def test_an_acknowledgement_that_is_lost_until_the_broker_forgot_the_batch(proxied, proxied_topic):
    spec = one_by_one(proxied, proxied_topic)
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append("a")
        lost = proxied.proxy.add(Fault.DROP_RESPONSE, Api.PRODUCE, where=by_writer(spec))
        outcome = job.append(table_of(ROWS))
        lost.reached.wait(0)
    require_truth(spec_of(proxied.direct, proxied_topic), outcome, ["a"], ROWS)
