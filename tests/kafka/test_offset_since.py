"""The offset of a timestamp on brokers, which also report transaction markers and uncommitted records."""

import random
import time

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import first_since
from spark_cas.log import clock
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka import kafka_log as log_module
from spark_cas.log.kafka.offsets import reading
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, admin_of, create_topic
from tests.kafka.proxy.frames import Api, Request
from tests.kafka.proxy.rules import Fault, of_client
from tests.support.programs import run_cli
from tests.support.writing import TIME_MS, records_in
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


class Writer:
    """A transactional producer that appends records with the given timestamps to partition 0."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._admin = admin_of(address)
        self._producer = Producer({"bootstrap.servers": address, "transactional.id": topic})
        self._producer.init_transactions(SECONDS)

    def begin(self, *times_ms: int, key: str | None = None) -> None:
        self._producer.begin_transaction()
        for each in times_ms:
            self._producer.produce(self._topic, "value", key, partition=0, timestamp=each)
        assert self._producer.flush(SECONDS) == 0

    def commit(self, *times_ms: int, key: str | None = None) -> None:
        if times_ms:
            self.begin(*times_ms, key=key)
        self._producer.commit_transaction(SECONDS)
        self._await_marker()

    def abort(self, *times_ms: int) -> None:
        self.begin(*times_ms)
        self._producer.abort_transaction(SECONDS)
        self._await_marker()

    def _await_marker(self) -> None:
        """Wait for the marker of the transaction, which the broker may write after the client's call has returned."""
        wait_until(
            lambda: self._end(IsolationLevel.READ_COMMITTED) == self._end(IsolationLevel.READ_UNCOMMITTED),
            SECONDS,
            lambda: "the marker is missing",
        )

    def _end(self, isolation: IsolationLevel) -> int:
        at = TopicPartition(self._topic, 0)
        found = self._admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=isolation)
        return int(found[at].result(SECONDS).offset)


@pytest.fixture
def log(broker):
    topic = create_topic(broker.bootstrap)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic)) as log:
        yield log


@pytest.fixture
def writer(log, broker):
    return Writer(broker.bootstrap, log.topic)


def times_in(log: KafkaLog) -> list[tuple[int, int]]:
    return [(offset, round(row["timestamp"].timestamp() * 1000)) for offset, row in records_in(log, 0)]


def assert_first_records(log: KafkaLog, *more_ms: int) -> None:
    """Compare the lookup of each interesting time with a search through all committed records."""
    committed = times_in(log)
    for at in sorted({each + near for _, each in committed for near in (-1, 0, 1)} | {*more_ms}):
        expected = next((offset for offset, each in committed if each >= at), None)
        assert log.offset_since(0, at) == expected, at


def test_markers_and_aborted_records_are_no_match(log, writer):
    writer.commit(TIME_MS, TIME_MS + 2)
    writer.abort(TIME_MS + 50, TIME_MS + 40)
    writer.commit(TIME_MS + 1)
    writer.abort(TIME_MS + 60)
    writer.commit(TIME_MS + 45, TIME_MS + 30)
    writer.abort(TIME_MS + 70)
    now_ms = clock.now_ms()
    assert_first_records(log, 0, TIME_MS + 50, TIME_MS + 60, TIME_MS + 70, now_ms - 60_000, now_ms, now_ms + 60_000)
    assert log.offset_since(0, now_ms - 60_000) is None, "markers are newer, and all records are older"


def test_a_new_record_after_old_chunks_is_the_match(log, writer):
    for _ in range(3):
        writer.commit(TIME_MS, TIME_MS - 5)
    since = clock.now_ms() - 60_000
    assert log.offset_since(0, since) is None
    writer.commit(TIME_MS, since, TIME_MS, since + 1)
    assert log.offset_since(0, since) == log.offset_since(0, TIME_MS + 1) == 10
    assert_first_records(log, since)


@pytest.mark.parametrize("seed", range(3))
def test_any_history_has_the_first_record_of_each_time(log, writer, seed):
    chance = random.Random(seed)
    for _ in range(12):
        times = [TIME_MS + chance.randrange(20) for _ in range(chance.randrange(1, 4))]
        chance.choice([writer.commit, writer.commit, writer.abort])(*times)
    now_ms = clock.now_ms()
    assert_first_records(log, *range(TIME_MS - 1, TIME_MS + 22), now_ms - 60_000)
    start = chance.randrange(1, log.bounds_of((0,), waiting=False)[0].end_offset)
    log.trim(0, start)
    assert log.bounds(0).start_offset == start
    assert_first_records(log, *range(TIME_MS - 1, TIME_MS + 22), now_ms - 60_000)


def test_a_record_in_an_open_transaction_matches_after_its_commit(log, writer, broker):
    other = Producer({"bootstrap.servers": broker.bootstrap})
    writer.commit(TIME_MS)
    writer.begin(TIME_MS + 9)
    other.produce(log.topic, "after", partition=0, timestamp=TIME_MS + 8)
    assert other.flush(SECONDS) == 0
    end = log.bounds_of([0], waiting=False)[0].end_offset
    assert [log.offset_since(0, TIME_MS + each) for each in (0, 1, 8, 9, 10)] == [0, None, None, None, None]
    writer.commit()
    assert log.bounds_of((0,), waiting=False)[0].end_offset == end + 3
    assert [log.offset_since(0, TIME_MS + each) for each in (0, 1, 8, 9, 10)] == [0, end, end, end, None]


def test_an_open_transaction_is_not_read(log, writer, monkeypatch):
    writer.commit(TIME_MS)
    log.bounds(0)  # waits for the marker, which the broker may write after the commit returns
    since = clock.now_ms() + 1
    wait_until(lambda: clock.now_ms() > since, SECONDS, lambda: "the clock does not advance")
    writer.begin(0)  # the client replaces 0 by the current time
    with monkeypatch.context() as without_reads:
        without_reads.setattr(log_module, "first_offset_since", None)
        assert log.offset_since(0, since) is None
        assert log.offset_since(0, since + 3_600_000) is None
    writer.commit()
    assert log.offset_since(0, since) == 2


def test_gaps_of_a_compacted_topic_are_no_match(broker):
    topic = create_topic(
        broker.bootstrap, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.0"
    )
    with KafkaLog(KafkaSpec(broker.bootstrap, topic)) as log:
        writer = Writer(broker.bootstrap, topic)
        for number in range(4):
            writer.commit(TIME_MS + 10 * number, key="same")

        def cleaned() -> bool:
            time.sleep(0.2)
            writer.commit(TIME_MS + 5, key="last")  # closes the segment
            return sum(row["key"] == b"same" for _, row in records_in(log, 0)) == 1

        wait_until(cleaned, SECONDS, lambda: "the broker does not compact")
        assert_first_records(log, 0, TIME_MS + 40, clock.now_ms() - 300_000)


def test_records_that_are_removed_during_a_lookup_are_skipped(log, writer, broker, monkeypatch):
    for each in range(4):
        writer.commit(TIME_MS + each)
    lookup = reading.first_offset_since
    admin = admin_of(broker.bootstrap)

    def after_removal(readers, at, offsets: OffsetRange, timestamp_ms):
        monkeypatch.setattr(log_module, "first_offset_since", lookup)
        removed = TopicPartition(log.topic, 0, 5)
        admin.delete_records([removed])[removed].result(SECONDS)
        return lookup(readers, at, offsets, timestamp_ms)

    monkeypatch.setattr(log_module, "first_offset_since", after_removal)
    assert log.offset_since(0, TIME_MS) == 6


def test_a_lookup_stops_at_its_record(log, writer, monkeypatch):
    writer.abort(TIME_MS)
    for _ in range(20):
        writer.commit(TIME_MS - 1)
        writer.commit(TIME_MS)
    examined = []

    def counting(records, timestamp_ms):
        examined.append(records.num_rows)
        return first_since(records, timestamp_ms)

    monkeypatch.setattr(reading, "first_since", counting)
    monkeypatch.setattr(reading, "_POLL_MESSAGES", 1)
    assert log.offset_since(0, TIME_MS) == 4
    assert examined == [1, 1]


def test_a_lookup_costs_one_round_trip_and_one_fetch(proxied):
    """Old and new records, with or without a marker or an aborted transaction before the match."""
    topic = create_topic(proxied.direct)
    writer = Writer(proxied.direct, topic)
    for _ in range(20):
        writer.commit(TIME_MS)
        writer.abort(TIME_MS + 5)
        writer.commit(TIME_MS + 5)
    spec = KafkaSpec(proxied.bootstrap, topic, client_options=(("client.id", topic),))
    with KafkaLog(spec) as log:
        assert log.offset_since(0, TIME_MS) == 0  # connects
        end_offset = log.bounds_of((0,), waiting=False)[0].end_offset.to_bytes(8, "big")

        def before_the_end(request: Request) -> bool:
            """Exclude fetches at the end, which the client repeats until the read stops."""
            return request.client_id == topic and end_offset not in request.frame

        lookups = proxied.proxy.add(Fault.WATCH, Api.LIST_OFFSETS, times=None, where=of_client(topic))
        fetches = proxied.proxy.add(Fault.WATCH, Api.FETCH, times=None, where=before_the_end)
        assert log.offset_since(0, TIME_MS + 5) == 4
        assert lookups.known == 3, "for the time, the start and the end, sent together"
        assert fetches.known == 1
        assert log.offset_since(0, clock.now_ms() - 3_600_000) is None


def test_trim_by_age_keeps_each_record_that_is_young_enough(log, writer):
    day_ms, now_ms = 86_400_000, clock.now_ms()
    writer.commit(now_ms - 9 * day_ms, now_ms - 8 * day_ms)
    writer.abort(now_ms - day_ms)
    writer.commit(now_ms - 2 * day_ms, now_ms - 9 * day_ms)
    young = times_in(log)[2:]
    assert run_cli("trim", log.spec.url, "--older-than", "7d").code == 0
    assert times_in(log) == young
    assert run_cli("trim", log.spec.url, "--older-than", "1d").code == 0
    assert times_in(log) == []
    writer.commit(now_ms)
    assert len(times_in(log)) == 1
