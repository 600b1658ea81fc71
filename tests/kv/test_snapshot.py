import sqlite3

import pyarrow as pa
import pytest

from key_value_store.records import Changes, Leader, leader_record, table_of
from key_value_store.snapshot import Snapshot
from key_value_store.values import ABSENT, Versioned
from spark_cas.core.errors import LogNotSharedError, StorageError
from spark_cas.core.records import RECORDS


@pytest.fixture
def snapshot(tmp_path):
    snapshot = Snapshot(tmp_path, "log", 0)
    yield snapshot
    snapshot.close()


def test_keys_and_the_upcoming_offset_are_there_again(tmp_path):
    first = Snapshot(tmp_path, "log", 0)
    first.apply(Changes({b"a": (b"1", 3), b"b": (b"", 4)}, Leader("node", 2)), 6)
    first.apply(Changes({b"a": (None, 6)}), 7)
    first.close()
    again = Snapshot(tmp_path, "log", 0)
    assert (again.upcoming_offset, again.leader) == (7, Leader("node", 2))
    assert (again.get(b"a"), again.get(b"b")) == (ABSENT, Versioned(b"", 4))
    assert again.peek(b"b") == Versioned(b"", 4)
    again.close()


@pytest.mark.parametrize(("log_id", "shard"), [("other", 0), ("log", 1)])
def test_the_snapshot_of_another_log_is_refused(tmp_path, log_id, shard):
    Snapshot(tmp_path, "log", 0).close()
    (tmp_path / "shard-00000.sqlite").rename(tmp_path / f"shard-{shard:05d}.sqlite")
    with pytest.raises(LogNotSharedError, match="another log"):
        Snapshot(tmp_path, log_id, shard)


def test_snapshot_of_another_process_is_not_overwritten(tmp_path, snapshot):
    other = Snapshot(tmp_path, "log", 0)
    other.apply(Changes({b"a": (b"1", 0)}), 1)
    for write in (lambda: snapshot.apply(Changes({b"a": (b"2", 0)}), 1), snapshot.forget):
        with pytest.raises(StorageError, match="another process"):
            write()
    assert snapshot.get(b"a") == Versioned(b"1", 0)
    other.close()


def test_failed_changes_are_not_applied(tmp_path, snapshot):
    with sqlite3.connect(tmp_path / "shard-00000.sqlite") as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON keys BEGIN SELECT RAISE(ABORT, 'no room'); END")
    with pytest.raises(StorageError, match="no room"):
        snapshot.apply(Changes({b"a": (b"1", 0)}), 1)
    assert snapshot.upcoming_offset == 0


def test_writes_are_read_as_they_were_made():
    (batch,) = table_of([(b"a", b"1"), (b"b", b""), (b"a", None)]).to_batches()
    assert Changes.read(10, batch) == Changes({b"a": (None, 12), b"b": (b"", 11)})


def test_the_newest_leader_is_read_and_is_no_key():
    records = pa.concat_tables([leader_record("x"), table_of([(b"a", b"1")]), leader_record("y")])
    (batch,) = records.combine_chunks().to_batches()
    assert Changes.read(5, batch) == Changes({b"a": (b"1", 6)}, Leader("y", 7))


def test_records_of_others_do_no_harm():
    rows = [
        {"key": None, "value": b"1"},
        {"key": b"spark_cas.kv/leader", "value": b"1"},
        {"key": b"spark_cas.kv/leader", "headers": [{"key": "spark_cas.kv.leader", "value": None}]},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=RECORDS)
    assert Changes.read(0, batch) == Changes({})
