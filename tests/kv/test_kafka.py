"""The store on a topic: brokers fence old leaders, and a transaction of the store is a Kafka transaction."""

from threading import Event, Thread

import pytest

from key_value_store import Versioned
from key_value_store.errors import NotLeaderError, VersionMismatchError
from key_value_store.records import LEADER_KEY
from tests.kafka.clients import create_topic
from tests.kafka.raw_records import RawRecord, append_raw
from tests.kv.nodes import SHARDS, keys_of, node

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

KEY, OTHER = keys_of(0, 2)
THERE = keys_of(1, 1)[0]
NODES = ("a", "b")


@pytest.fixture
def address(broker):
    return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, SHARDS)}"


@pytest.fixture
def two(address, tmp_path):
    with node(address, tmp_path, "a", nodes=NODES) as a, node(address, tmp_path, "b", nodes=NODES) as b:
        yield a, b


@pytest.mark.usefixtures("still", "impatient")
def test_stale_leader_neither_reads_nor_writes(two):
    a, b = two
    a.lead(0)
    version = a.put(KEY, b"old")
    assert a.get(KEY) == Versioned(b"old", version)
    b.lead(0)
    version = b.put(KEY, b"new", expected_version=version)
    for ask in (lambda: a.get(KEY), lambda: a.put(KEY, b"late"), lambda: a.put(KEY, b"", expected_version=version)):
        with pytest.raises(NotLeaderError) as refused:
            ask()
        assert refused.value.leader == "b"
    assert a.get(KEY, stale=True) == b.get(KEY) == Versioned(b"new", version)
    a.lead(0)
    assert a.put(KEY, b"newer", expected_version=version) > version


@pytest.mark.usefixtures("impatient")
def test_a_leader_that_is_busy_is_deposed(two):
    a, b = two
    a.lead(0)
    stopped = Event()

    def write():
        while not stopped.is_set():
            try:
                a.put(KEY, b"busy")
            except NotLeaderError:
                return

    writing = Thread(target=write)
    writing.start()
    try:
        b.lead(0)
        b.put(OTHER, b"1")
    finally:
        stopped.set()
        writing.join()
    assert b.get(OTHER).value == b"1"


@pytest.mark.usefixtures("impatient")
def test_transaction_is_in_all_its_shards_and_takes_over_others(two):
    a, b = two
    a.lead(0)
    b.lead(1)
    a.put(KEY, b"0")
    versions = b.transact({KEY: b"1", THERE: b"1"}, {THERE: None})
    with pytest.raises(VersionMismatchError):
        b.transact({KEY: b"2", THERE: b"2"}, {THERE: None})
    assert (b.get(KEY), b.get(THERE)) == (Versioned(b"1", versions[KEY]), Versioned(b"1", versions[THERE]))
    version = b.put(KEY, b"3", expected_version=versions[KEY])
    assert version > versions[KEY]
    with pytest.raises(NotLeaderError):
        a.put(KEY, b"late")
    b.transact({THERE: b"3"}, {KEY: version})
    with pytest.raises(VersionMismatchError):
        b.transact({THERE: b"4"}, {KEY: versions[KEY]})
    assert b.get(THERE).value == b"3"


@pytest.mark.usefixtures("still", "impatient")
def test_header_that_is_not_utf8_does_not_lock_its_shard(broker, tmp_path):
    """The node needs headers only in leader records: one with such a header names no leader."""
    topic = create_topic(broker.bootstrap, SHARDS)
    headers = [(b"\xff", b"1")]
    records = [RawRecord(b"0", KEY), RawRecord(b"1", OTHER, headers), RawRecord(b"2", LEADER_KEY, headers)]
    append_raw(broker.bootstrap, topic, *records, RawRecord(b"3", KEY))
    with node(f"kafka://{broker.bootstrap}/{topic}", tmp_path) as own:
        own.lead(0)
        assert (own.get(KEY), own.get(OTHER)) == (Versioned(b"3", 3), Versioned(b"1", 1))
        assert own.put(KEY, b"4") > 3
