"""Following a shard whose log is compacted: what was deleted shows in nothing that is read once that is gone, too."""

import pytest

from spark_cas.kv.following import Follower
from spark_cas.kv.snapshot import Snapshot
from spark_cas.log import clock
from spark_cas.log.memory import MemoryLog
from spark_cas.testing.writing import append_foreign

KEPT_MS = 60_000


class Compacted(MemoryLog):
    """Something happens just before it is asked where a partition ends."""

    meanwhile = staticmethod(lambda: None)

    def tombstones_kept_ms(self):
        return KEPT_MS

    def bounds_of(self, partitions, *, waiting):
        self.meanwhile()
        return super().bounds_of(partitions, waiting=waiting)


@pytest.mark.parametrize("look", [Follower.look, Follower.catch_up])
def test_a_deletion_that_came_and_went_while_a_node_stood_still_is_not_missed(tmp_path, monkeypatch, look):
    now_ms = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    log = Compacted()
    log.create(1)
    append_foreign(log, 0, "k")
    snapshot = Snapshot(tmp_path, log.layout().log_id, 0)
    follower = Follower(log, 0, snapshot)
    follower.look()
    assert snapshot.get(b"k").value is not None

    def stand_still():
        nonlocal now_ms
        log.meanwhile = lambda: None
        now_ms += 2 * KEPT_MS
        log._partitions[0].chunks.pop()
        append_foreign(log, 0, "x")

    log.meanwhile = stand_still
    look(follower)
    assert snapshot.get(b"k").value is None
    assert snapshot.get(b"x").value is not None
