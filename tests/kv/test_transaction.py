"""Transactions over several shards: atomic, with version checks in the same step, beside the leaders' batches."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from key_value_store import Versioned
from key_value_store.errors import NotLeaderError, VersionMismatchError
from key_value_store.records import table_of
from key_value_store.values import ABSENT
from spark_cas.core.errors import LayoutChangedError, StorageError, TruncatedError, UnknownOutcomeError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Fenced
from spark_cas.core.partitioner import partition_of_key
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.append_once import append_whole
from tests.kv.nodes import SHARDS, asking, keys_of, node
from tests.support.faults import Fault, FaultyLog, When
from tests.support.memory_log import MemoryLog
from tests.support.writing import JobWriter, append_foreign, plan_of, records_in

HERE, *MORE = keys_of(0, 4)
THERE = keys_of(1, 1)[0]
NODES = ("a", "b")


def test_keys_of_several_shards_are_written_in_one_step(log, tmp_path):
    with node(log, tmp_path) as a:
        versions = a.transact({HERE: b"1", THERE: b"2"}, {HERE: None})
        assert a.get(HERE) == Versioned(b"1", versions[HERE])
        assert a.get(THERE) == Versioned(b"2", versions[THERE])
        assert a.put(HERE, b"3", expected_version=versions[HERE]) > versions[HERE]
        deleted = a.transact({HERE: None, THERE: b"4"}, {THERE: versions[THERE]})
        assert (a.get(HERE), a.get(THERE)) == (ABSENT, Versioned(b"4", deleted[THERE]))


@pytest.mark.parametrize("key", [HERE, THERE])
def test_one_wrong_version_leaves_nothing_written(log, tmp_path, key):
    with node(log, tmp_path) as a:
        a.put(key, b"0")
        with pytest.raises(VersionMismatchError) as refused:
            a.transact({HERE: b"1", THERE: b"1"}, {key: None})
        assert refused.value.key == key
        others = {HERE, THERE} - {key}
        assert [a.get(each) for each in others] == [ABSENT]
        assert a.get(key).value == b"0"


def test_a_key_that_is_only_read_holds_its_version_in_the_very_step(log, tmp_path):
    with node(log, tmp_path) as a:
        version = a.put(THERE, b"0")
        a.transact({HERE: b"1"}, {THERE: version})
        a.put(THERE, b"1")
        with pytest.raises(VersionMismatchError):
            a.transact({HERE: b"2"}, {THERE: version})
        assert a.get(HERE).value == b"1"


def test_the_keys_of_one_shard_need_no_whole_load(log, tmp_path):
    with node(log, tmp_path) as a:
        versions = a.transact(dict.fromkeys(MORE, b"1"))
        assert sorted(versions) == sorted(MORE)
    with log() as read:
        assert read.jobs() == ()


@pytest.mark.usefixtures("still", "impatient")
def test_node_takes_over_shards_of_another(log, tmp_path):
    with node(log, tmp_path, "a", nodes=NODES) as a, node(log, tmp_path, "b", nodes=NODES) as b:
        a.lead(0)
        b.lead(1)
        a.put(HERE, b"0")
        b.transact({HERE: b"1", THERE: b"1"})
        with pytest.raises(NotLeaderError):
            a.get(HERE)
        assert b.get(HERE).value == b"1"


@pytest.mark.parametrize("error", [StorageError("the reply was lost."), TruncatedError("the log ends before it.")])
def test_commit_without_a_reply_is_unknown_and_complete(tmp_path, error):
    memory = MemoryLog()
    memory.create(SHARDS)

    def fail():
        raise error

    faulty = FaultyLog(memory, Fault("put_entry", 1, When.AFTER, fail))
    with node(lambda: faulty, tmp_path) as a:
        with pytest.raises(UnknownOutcomeError):
            a.transact({HERE: b"1", THERE: b"1"})
        assert a.get(HERE).value == a.get(THERE).value == b"1"


@pytest.mark.parametrize("expected", [[HERE], [HERE, THERE]])
def test_commit_that_the_log_lost_is_unknown_after_other_records(tmp_path, expected):
    """The node does not report a rejection because of later records, and does not write the transaction twice."""
    memory = MemoryLog()
    memory.create(SHARDS)

    def lose():
        append_foreign(memory, 0, "since")
        raise TruncatedError("the log ends before it.")

    faulty = FaultyLog(memory, Fault("put_entry", 1, When.AFTER, lose))
    with node(lambda: faulty, tmp_path) as a:
        versions = {HERE: a.put(HERE, b"0"), THERE: a.put(THERE, b"0")}
        with pytest.raises(UnknownOutcomeError):
            a.transact({THERE: b"1"}, {key: versions[key] for key in expected})
    assert [row["value"] for _, row in records_in(memory, 1) if row["key"] == THERE] == [b"0", b"1"]


class Topic(FaultyLog):
    """A log like Kafka: a newer claim fences the previous one, and end offsets may be those of an old leader."""

    def __init__(self, memory, newest):
        super().__init__(memory)
        self.newest = newest
        self.told = {}
        """The bounds that a demoted leader reports before it knows of its demotion, by partition."""

    def claim(self, partition, plan):
        if not plan.group:
            self.newest[partition] = plan.job
            self.told = {}
        return super().claim(partition, plan)

    def append(self, claim, chunk):
        plan, at = claim.plan, claim.partition
        if not plan.group and self.newest[at] != plan.job:
            return Fenced(None)
        if plan.group and not chunk.records.num_rows and at in self.told:
            # A transaction without a record does not lock the partition, so the bounds decide.
            end = self.told[at].end_offset
            return Appended(OffsetRange(end, end), 0, None, 0, has_offset=True, resolved=False)
        return super().append(claim, chunk)

    def bounds(self, partition):
        return self.bounds_of([partition], waiting=True)[0]

    def bounds_of(self, partitions, **how):
        found = super().bounds_of(partitions, **how)
        return tuple(self.told.get(each, bounds) for each, bounds in zip(partitions, found, strict=True))


@pytest.mark.usefixtures("still", "impatient")
def test_stale_leader_writes_nothing_by_an_old_version(tmp_path):
    """The transaction writes nothing to the shard of this key, so no append detects the conflict."""
    memory = MemoryLog()
    memory.create(SHARDS)
    newest: dict[int, str] = {}
    topics = {each: Topic(memory, newest) for each in NODES}
    with (
        node(lambda: topics["a"], tmp_path, "a", nodes=NODES) as a,
        node(lambda: topics["b"], tmp_path, "b", nodes=NODES) as b,
    ):
        a.lead(0)
        a.lead(1)
        version = a.put(HERE, b"old")
        topics["a"].told = {0: memory.bounds(0)}
        b.lead(0)
        b.put(HERE, b"new")
        assert a.status()[0].leads
        with pytest.raises(NotLeaderError):
            a.transact({THERE: b"of the old one"}, {HERE: version})
        assert a.get(THERE) == ABSENT


@pytest.mark.usefixtures("still", "impatient")
@pytest.mark.parametrize("changed", [HERE, THERE], ids=["read", "written"])
def test_transaction_is_rejected_if_a_shard_changed_after_its_check(tmp_path, monkeypatch, changed):
    """The log rejects it, because the leader expects an offset in each shard, also in those that it only reads."""
    memory = MemoryLog()
    memory.create(SHARDS)

    def late(*args, **named):
        monkeypatch.setattr("key_value_store.transaction.append_whole", append_whole)
        records = table_of([(changed, b"new")])
        assert isinstance(
            JobWriter(memory, plan_of(memory, "other"), partition_of_key(changed, SHARDS)).append(records), Appended
        )
        return append_whole(*args, **named)

    with node(lambda: FaultyLog(memory), tmp_path) as a:
        versions = a.transact({HERE: b"old", THERE: b"old"})
        monkeypatch.setattr("key_value_store.transaction.append_whole", late)
        with pytest.raises(VersionMismatchError):
            a.transact({THERE: b"mine"}, versions)
        assert a.get(changed).value == b"new"
        assert a.get(HERE if changed == THERE else THERE).value == b"old"


def test_a_log_that_gets_more_partitions_takes_no_more_transactions(log, tmp_path):
    with node(log, tmp_path) as a:
        a.transact({HERE: b"1", THERE: b"1"})
        with log() as opened:
            expand_log(opened, SHARDS + 1)
        for _ in range(2):
            with pytest.raises(LayoutChangedError):
                a.transact({HERE: b"2", THERE: b"2"})
        assert a.get(HERE, stale=True).value == b"1"


@pytest.mark.usefixtures("impatient")
def test_no_transfer_makes_or_loses_money(log, tmp_path):
    """The accounts are in two shards. Two nodes take turns as the leader, and plain writes run at the same time."""
    with node(log, tmp_path, "a", nodes=NODES) as a, node(log, tmp_path, "b", nodes=NODES) as b:
        nodes = {"a": a, "b": b}
        a.transact({HERE: b"50", THERE: b"50"})

        def transfer(number):
            each = (a, b)[number % 2]
            while True:
                try:
                    before = [asking(nodes, "get", key) for key in (HERE, THERE)]
                    left, right = (int(found.value) for found in before)
                    values = {HERE: b"%d" % (left - 1), THERE: b"%d" % (right + 1)}
                    asking(nodes, "put", MORE[0], b"beside")
                    return each.transact(values, {HERE: before[0].version, THERE: before[1].version})
                except (VersionMismatchError, NotLeaderError):
                    continue

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(transfer, range(8)))
        assert [asking(nodes, "get", key).value for key in (HERE, THERE)] == [b"42", b"58"]
