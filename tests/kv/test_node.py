"""One node: it serves its writes, checks their conditions, and keeps them after a restart."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Timer

import pytest

from key_value_store import Versioned
from key_value_store.errors import MayBeStaleError, VersionMismatchError
from key_value_store.values import ABSENT
from spark_cas.core.errors import LayoutChangedError, StorageError, UnknownOutcomeError
from spark_cas.core.outcome import Appended, Truncated
from spark_cas.log import clock
from spark_cas.log.expanding import expand_log
from tests.kv.nodes import SECONDS, SHARDS, keys_of, node
from tests.support.faults import Fault, FaultyLog, When
from tests.support.memory_log import MemoryLog
from tests.support.writing import append_foreign, records_in
from tools.kafka_broker.waiting import wait_until

KEY, OTHER, *MANY = keys_of(0, 10)
ELSEWHERE = keys_of(1, 1)[0]
LEADER_RECORD = 1


@pytest.fixture
def memory():
    log = MemoryLog()
    log.create(SHARDS)
    return log


def held(memory):
    """Return a log that holds its first append after the leader record, and two events: its arrival, its release."""
    entered, leave = Event(), Event()

    def wait():
        entered.set()
        leave.wait(SECONDS)

    return FaultyLog(memory, Fault("append", LEADER_RECORD + 1, When.BEFORE, wait)), entered, leave


def test_a_key_has_the_offset_of_its_record_as_version(log, tmp_path):
    with node(log, tmp_path) as a:
        first, second = a.put(KEY, b"1"), a.put(KEY, b"2")
        assert a.get(KEY) == Versioned(b"2", second)
        assert a.get(OTHER) == ABSENT
    with log() as read:
        keys = {offset: row["key"] for offset, row in records_in(read, 0)}
    assert (keys[first], keys[second]) == (KEY, KEY)


def test_a_deleted_key_is_absent(log, tmp_path):
    with node(log, tmp_path) as a:
        version = a.put(KEY, b"1")
        assert a.delete(KEY, expected_version=version) > version
        assert a.get(KEY) == ABSENT
        assert a.put(KEY, b"2", expected_version=None) > version


@pytest.mark.parametrize("expected", [None, 0])
def test_another_version_is_refused_with_the_one_that_is_there(log, tmp_path, expected):
    with node(log, tmp_path) as a:
        version = a.put(KEY, b"1")
        with pytest.raises(VersionMismatchError) as refused:
            a.put(KEY, b"2", expected_version=expected)
        assert (refused.value.key, refused.value.actual) == (KEY, version)
        assert a.get(KEY) == Versioned(b"1", version)


def test_no_increment_of_many_threads_is_lost(log, tmp_path):
    def increment(_):
        while True:
            found = a.get(KEY)
            try:
                return a.put(KEY, b"%d" % (int(found.value or 0) + 1), expected_version=found.version)
            except VersionMismatchError:
                continue

    with node(log, tmp_path) as a, ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(increment, range(40)))) == 40
        assert a.get(KEY).value == b"40"


def test_concurrent_writes_are_one_chunk(memory, tmp_path):
    faulty, entered, leave = held(memory)
    with node(lambda: faulty, tmp_path, shards=[0]) as a:
        futures = [a.submit({KEY: b"1"})]
        entered.wait(SECONDS)
        futures += [a.submit({key: b"2"}) for key in MANY]
        leave.set()
        for each in futures:
            each.result(SECONDS)
    assert faulty.calls["append"] == LEADER_RECORD + 2


def test_a_write_is_acknowledged_once_it_is_committed_and_not_before(memory, tmp_path):
    faulty, entered, leave = held(memory)
    with node(lambda: faulty, tmp_path, shards=[0]) as a:
        future = a.submit({KEY: b"1"})
        entered.wait(SECONDS)
        assert not future.done()
        assert a.get(KEY, stale=True) == ABSENT
        leave.set()
        future.result(SECONDS)
        assert a.get(KEY, stale=True).value == b"1"


def test_lost_reply_is_unknown_and_read_from_the_log(memory, tmp_path):
    lossy = FaultyLog(memory, Fault("append", LEADER_RECORD + 1, When.AFTER), lose_append_replies=True)
    with node(lambda: lossy, tmp_path, shards=[0]) as a:
        with pytest.raises(UnknownOutcomeError):
            a.put(KEY, b"1")
        assert a.get(KEY).value == b"1"
        assert a.status()[0].unknown == 1


class Losing(FaultyLog):
    """A log whose first append after the leader record reports that the log lost it again after the commit."""

    def append(self, claim, chunk):
        outcome = super().append(claim, chunk)
        if self.calls["append"] != LEADER_RECORD + 1:
            return outcome
        assert isinstance(outcome, Appended)
        return Truncated(outcome.range.end_offset, outcome.range.base_offset)


def test_write_that_the_log_may_have_lost_is_unknown(memory, tmp_path):
    losing = Losing(memory)
    with node(lambda: losing, tmp_path, shards=[0]) as a:
        with pytest.raises(UnknownOutcomeError, match="has lost records"):
            a.put(KEY, b"1")
        assert a.get(KEY).value == b"1"
        assert a.status()[0].unknown == 1


def test_a_log_that_fails_refuses_writes_and_answers_no_read_as_fresh(memory, tmp_path):
    def fail():
        raise StorageError("the store is down.")

    faults = [Fault("append", LEADER_RECORD + 1 + each, When.BEFORE, fail) for each in (1, 2)]
    faulty = FaultyLog(memory, *faults)
    with node(lambda: faulty, tmp_path, shards=[0]) as a:
        a.put(KEY, b"1")
        with pytest.raises(StorageError):
            a.put(KEY, b"2")
        with pytest.raises(MayBeStaleError):
            a.get(KEY)
        assert a.get(KEY, stale=True).value == b"1"
        assert a.get(KEY).value == b"1"


def test_node_continues_from_its_snapshot(log, tmp_path):
    with node(log, tmp_path) as a:
        a.put(KEY, b"1")
        version = a.put(KEY, b"2")
    with log() as trimmed:
        append_foreign(trimmed, 0, "x")
        trimmed.trim(0, version + 1)
    with node(log, tmp_path) as again:
        assert again.get(KEY) == Versioned(b"2", version)
    with node(log, tmp_path, "new") as new:
        wait_until(lambda: new.status()[0].error is not None, SECONDS, lambda: "the status has no error")
        assert "TRIMMED" in new.status()[0].error


class Compacted(FaultyLog):
    """A log that keeps tombstones for some time."""

    def tombstones_kept_ms(self):
        return 60_000


@pytest.mark.parametrize(("away_ms", "begins_anew"), [(20_000, False), (40_000, True)])
def test_node_absent_during_compaction_rebuilds_its_snapshot(memory, tmp_path, monkeypatch, away_ms, begins_anew):
    compacted = Compacted(memory)
    with node(lambda: compacted, tmp_path, shards=[0]) as a:
        a.put(KEY, b"1")
    memory._partitions[0].chunks.pop()  # as compaction does after the key is deleted
    append_foreign(memory, 0, "x")
    now_ms = clock.now_ms() + away_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    with node(lambda: compacted, tmp_path, shards=[0]) as a:
        assert (a.get(KEY) == ABSENT) is begins_anew


def test_snapshot_that_cannot_be_rebuilt_is_kept(memory, tmp_path, monkeypatch):
    compacted = Compacted(memory)
    with node(lambda: compacted, tmp_path, shards=[0]) as a:
        version = a.put(KEY, b"1")
    memory.trim(0, version)
    append_foreign(memory, 0, "x")
    now_ms = clock.now_ms() + 40_000
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    with node(lambda: compacted, tmp_path, shards=[0]) as a:
        wait_until(lambda: a.status()[0].error is not None, SECONDS, lambda: "the status has no error")
        assert "TRIMMED" in a.status()[0].error
        assert a.get(KEY, stale=True) == Versioned(b"1", version)


class CutShort(Compacted):
    """A log whose reads fail after the first batch of records."""

    def __init__(self, log):
        super().__init__(log)
        self.begun_at = []

    def read(self, partition, offsets, columns=()):
        self.begun_at.append(offsets.base_offset)
        found = list(super().read(partition, offsets, columns))
        yield found[0]
        if len(found) > 1:
            raise StorageError("the store does not respond.")


def test_interrupted_first_replay_resumes(memory, tmp_path):
    for value in "abc":
        append_foreign(memory, 0, value)
    cut_short = CutShort(memory)
    with node(lambda: cut_short, tmp_path, shards=[0]) as a:
        wait_until(
            lambda: a.status()[0].upcoming_offset == 3, SECONDS, lambda: f"the replay began at {cut_short.begun_at}"
        )
        assert a.get(b"a", stale=True).value == b"a"
    assert cut_short.begun_at[:3] == [0, 1, 2]


def test_records_of_other_writers_are_part_of_the_state(log, tmp_path):
    with node(log, tmp_path) as a:
        a.put(KEY, b"1")
        with log() as other:
            append_foreign(other, 0, KEY.decode())
        assert a.get(KEY).value == KEY
        with log() as other:
            append_foreign(other, 0, OTHER.decode())
        a.put(KEY, b"2")
        assert (a.get(KEY).value, a.get(OTHER).value) == (b"2", OTHER)
        assert a.status()[0].refused == 0


def test_a_closed_node_takes_nothing(log, tmp_path):
    with node(log, tmp_path) as a:
        pass
    with pytest.raises(StorageError, match="closed"):
        a.put(KEY, b"1")


def test_requests_end_when_the_node_closes(memory, tmp_path):
    asked, leave = Event(), Event()
    with ThreadPoolExecutor(2) as threads, node(lambda: memory, tmp_path, shards=[0]) as a:
        queue = a._shards[0]._queue
        put = queue.put

        def slowly(each):
            if each is not None:
                asked.set()
                leave.wait(SECONDS)
            put(each)

        queue.put = slowly
        submitted = threads.submit(a.submit, {KEY: b"1"})
        asked.wait(SECONDS)
        closed = threads.submit(a.close)
        Timer(0.2, leave.set).start()
        future = submitted.result(SECONDS)
        closed.result(SECONDS)
        assert future.exception(SECONDS) is None or isinstance(future.exception(), StorageError)


def test_a_write_that_was_not_begun_in_time_is_not_written(memory, tmp_path):
    faulty, entered, leave = held(memory)
    with node(lambda: faulty, tmp_path, shards=[0]) as a:
        first = a.submit({KEY: b"1"})
        entered.wait(SECONDS)
        with pytest.raises(StorageError, match="Nothing was written"):
            a.put(OTHER, b"2", timeout=0.01)
        leave.set()
        first.result(SECONDS)
        assert a.get(OTHER) == ABSENT


def test_keys_of_shards_that_are_not_followed_are_not_here(log, tmp_path):
    with node(log, tmp_path, shards=[1]) as a:
        a.put(ELSEWHERE, b"1")
        with pytest.raises(Exception, match="not followed"):
            a.get(KEY)


@pytest.mark.parametrize("writes", [{}, {b"spark_cas.kv/leader": b""}])
def test_writes_without_keys_and_of_the_reserved_key_are_refused(log, tmp_path, writes):
    with node(log, tmp_path) as a, pytest.raises(ValueError, match="at least one key"):
        a.submit(writes)


def test_a_log_that_got_more_partitions_is_no_store(log, tmp_path):
    with log() as opened:
        expand_log(opened, SHARDS + 1)
    with pytest.raises(LayoutChangedError, match="partitions were added"):
        node(log, tmp_path)
