"""Follow a shard whose log is compacted: reads see a deletion even after compaction has removed its record."""

import pytest

from key_value_store.following import Follower
from key_value_store.snapshot import Snapshot
from spark_cas.core.errors import StorageError
from spark_cas.log import clock
from tests.kv.nodes import SHARDS, keys_of, node
from tests.support.faults import Fault, FaultyLog, When
from tests.support.memory_log import MemoryLog
from tests.support.writing import append_foreign

KEPT_MS = 60_000
KEY, OTHER = keys_of(0, 2)
THERE = keys_of(1, 1)[0]


class Compacted(MemoryLog):
    """A compacted log with hooks before it returns bounds, and before a read."""

    before_bounds = before_read = staticmethod(lambda: None)

    def tombstones_kept_ms(self):
        return KEPT_MS

    def bounds_of(self, partitions, **how):
        self.before_bounds()
        return super().bounds_of(partitions, **how)

    def read(self, *what):
        self.before_read()
        return super().read(*what)


@pytest.fixture
def now(monkeypatch):
    """A simulated clock: a list with the time in milliseconds."""
    now = [clock.now_ms()]
    monkeypatch.setattr(clock, "now_ms", lambda: now[0])
    return now


@pytest.fixture
def log():
    log = Compacted()
    log.create(1)
    append_foreign(log, 0, "k")
    return log


@pytest.fixture
def snapshot(log, tmp_path):
    return Snapshot(tmp_path, log.layout().log_id, 0)


@pytest.mark.parametrize("step", ["before_bounds", "before_read"])
@pytest.mark.parametrize("look", [Follower.read, Follower.catch_up])
def test_deletion_compacted_during_a_stall_is_applied(log, snapshot, now, look, step):
    follower = Follower(log, 0, snapshot)
    follower.read()
    assert snapshot.get(b"k").value is not None
    append_foreign(log, 0, "x")

    def stand_still():
        setattr(log, step, lambda: None)
        now[0] += 2 * KEPT_MS
        del log._partitions[0].chunks[0]

    setattr(log, step, stand_still)
    look(follower)
    assert snapshot.get(b"k").value is None
    assert snapshot.get(b"x").value is not None


def test_reads_slower_than_the_retention_of_deletions_fail(log, snapshot, now):
    def slowly():
        now[0] += KEPT_MS

    log.before_read = slowly
    follower = Follower(log, 0, snapshot)
    for _ in range(2):
        with pytest.raises(StorageError, match="takes longer than the log keeps a deletion"):
            follower.read()
    log.before_read = lambda: None
    follower.read()
    assert snapshot.get(b"k").value is not None


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize(
    ("writes", "commit", "call"), [({OTHER: b"1"}, "append", 3), ({OTHER: b"1", THERE: b"1"}, "put_entry", 1)]
)
def test_leader_that_stalled_after_its_commit_misses_no_deletion(tmp_path, now, writes, commit, call):
    """The leader has not applied its append yet, and its snapshot has the value that was deleted in the meantime."""
    log = Compacted()
    log.create(SHARDS)

    def stand_still():
        now[0] += 2 * KEPT_MS
        chunks = log._partitions[0].chunks
        chunks[:] = [each for each in chunks if KEY not in each[1].column("key").to_pylist()]
        append_foreign(log, 0, "later")

    faulty = FaultyLog(log, Fault(commit, call, When.AFTER, stand_still))
    with node(lambda: faulty, tmp_path) as a:
        a.put(KEY, b"deleted meanwhile")
        a.transact(writes)
        assert a.get(KEY).value is None
        assert a.get(OTHER).value == b"1"
