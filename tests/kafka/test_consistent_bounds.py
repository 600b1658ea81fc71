"""Bounds of several partitions under constant appends: they do not split any atomic load."""

import pytest
from confluent_kafka import TopicPartition

from spark_cas import append_once
from spark_cas.core.errors import UndecidedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import NotPermittedError
from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.end_offsets import at_one_moment
from spark_cas.log.kafka.registry.group_metadata import Ledger
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import pin_plan
from tests.contract.whole import bounded, run_whole
from tests.kafka.clients import SECONDS, create_topic
from tests.support.batches import run_batch
from tests.support.loads import Rows, rows_of
from tests.support.writing import append_foreign, table_of

pytestmark = pytest.mark.kafka

ROWS = rows_of(3, 0, 1)


@pytest.fixture
def log(broker):
    with KafkaLog(KafkaSpec(broker.bootstrap, create_topic(broker.bootstrap, 2))) as opened:
        yield opened


@pytest.fixture
def busy(monkeypatch):
    """Partitions that appear to have concurrent appends at every check."""
    monkeypatch.setattr(end_offsets, "stable_ends", lambda *_: None)


def between(monkeypatch, happens):
    """Call a function once, after the read of the bounds of the first partition and before that of the second."""
    barriers = end_offsets.barriers

    def one_after_the_other(admin, ats, timeout_seconds):
        if len(ats) != 2 or not ats[0].topic.startswith("t-"):
            return barriers(admin, ats, timeout_seconds)
        first = barriers(admin, ats[:1], timeout_seconds)
        if happens:
            happens.pop()()
        return (*first, *barriers(admin, ats[1:], timeout_seconds))

    monkeypatch.setattr(end_offsets, "barriers", one_after_the_other)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("what", ["load", "records", "batch", "next batch", "pinned before"])
def test_load_committed_between_two_reads_is_in_all_bounds(log, broker, monkeypatch, what):
    """The load may begin after the read has begun, and complete before the read ends."""
    append_foreign(log, 0, "a")
    begun: Rows = {0: [], 1: []}
    if what == "next batch":
        run_batch(log, 0, ROWS, whole=True)
        begun = ROWS
    if what == "pinned before":
        pin_plan(log, "job", ExpectedOffsets("end"), whole=True)

    def commit():
        with KafkaLog(log.spec) as other:
            match what:
                case "load" | "pinned before":
                    run_whole(other, "job", ROWS)
                case "records":
                    mapping = {at: table_of(values) for at, values in ROWS.items()}
                    append_once(other, mapping, job="records", expected_offset=dict.fromkeys(mapping))
                case "batch":
                    run_batch(other, 0, ROWS, whole=True)
                case "next batch":
                    run_batch(other, 1, ROWS, whole=True)

    happens = [commit]
    between(monkeypatch, happens)
    assert bounded(log) == {0: ["a", *begun[0], *ROWS[0]], 1: [*begun[1], *ROWS[1]]}
    assert not happens


@pytest.mark.usefixtures("busy")
def test_complete_loads_are_not_requested_again(log, monkeypatch):
    run_whole(log, "job", ROWS)
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(Ledger, "read_all", lambda *given: asked.append(given))
    assert bounded(log) == ROWS
    assert asked == []


def test_reader_without_access_to_the_registry_gets_bounds(log, busy):
    run_whole(log, "job", ROWS)

    def refused():
        raise NotPermittedError("may not")

    admin, ats = admin_of(log)
    assert at_one_moment(admin, ats, refused, lambda _: (), SECONDS) == end_offsets.barriers(admin, ats, SECONDS)


def test_continuous_loads_are_reported_at_the_timeout(log, busy):
    """A test cannot commit so many loads. Instead, each read finds another ledger entry."""
    run_whole(log, "job", ROWS)
    held = log.progress_of(range(2), "job")
    entries = iter([(each,) for number in range(1000) for each in (None, held[number % 2])])
    with pytest.raises(UndecidedError, match="committed again and again"):
        at_one_moment(*admin_of(log), lambda: {"job": False}, lambda _: next(entries), 0.2)


def admin_of(log: KafkaLog) -> tuple[Admin, list[TopicPartition]]:
    return admin_client(log.spec), [TopicPartition(log.topic, at) for at in range(2)]
