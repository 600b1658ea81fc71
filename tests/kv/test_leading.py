"""Two nodes: the log decides which one leads. A demoted leader neither serves reads from its state nor writes."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from key_value_store import Versioned
from key_value_store.errors import NotLeaderError, VersionMismatchError
from key_value_store.records import LEADER_KEY
from key_value_store.term import Term
from tests.kv.nodes import SECONDS, SHARDS, asking, keys_of, node
from tests.support.writing import records_in
from tools.kafka_broker.waiting import wait_until

KEY, OTHER = keys_of(0, 2)
NODES = ("a", "b")


def leader_records(log):
    with log() as read:
        return sum(row["key"] == LEADER_KEY for _, row in records_in(read, 0))


@pytest.fixture
def two(log, tmp_path):
    with node(log, tmp_path, "a", nodes=NODES) as a, node(log, tmp_path, "b", nodes=NODES) as b:
        yield a, b


def test_each_shard_is_begun_by_one_node_and_the_other_names_it(two):
    for key in (key for shard in range(SHARDS) for key in keys_of(shard, 1)):
        asking(dict(zip(NODES, two, strict=True)), "put", key, b"1")
    led = [[status.leads for status in each.status()] for each in two]
    assert all(sum(of) == 1 for of in zip(*led, strict=True))


def test_followers_reach_the_same_state(two):
    a, b = two
    a.lead(0)
    version = a.put(KEY, b"1")
    wait_until(lambda: b.get(KEY, stale=True) == Versioned(b"1", version), SECONDS, lambda: "b does not follow")
    with pytest.raises(NotLeaderError) as refused:
        b.get(KEY)
    assert refused.value.leader == "a"
    status = b.status()[0]
    assert (status.leader, status.leads, status.lag) == ("a", False, 0)


def depose(a, b):
    """Make the second node lead the shard of the first, and write a value that the first does not know of."""
    a.lead(0)
    a.put(KEY, b"old")
    b.lead(0)
    return b.put(KEY, b"new")


@pytest.mark.usefixtures("still", "impatient")
def test_stale_leader_serves_no_read(two):
    a, b = two
    depose(a, b)
    assert a.status()[0].leads
    with pytest.raises(NotLeaderError) as refused:
        a.get(KEY)
    assert refused.value.leader == "b"
    assert not a.status()[0].leads


@pytest.mark.usefixtures("still", "impatient")
def test_stale_leader_writes_nothing(two, monkeypatch):
    a, b = two
    version = depose(a, b)
    appends, append = [], Term.append

    def counted(term, records):
        appends.append(records)
        return append(term, records)

    monkeypatch.setattr(Term, "append", counted)
    with pytest.raises(NotLeaderError) as refused:
        a.put(KEY, b"older", timeout=5)
    assert refused.value.leader == "b"
    assert len(appends) == 1, "the node steps down after the first rejection"
    assert a.get(KEY, stale=True) == b.get(KEY) == Versioned(b"new", version)


@pytest.mark.usefixtures("still", "impatient")
def test_stale_leader_reports_no_old_version(two):
    """A mismatch would report another version than the one that the client got from the leader."""
    a, b = two
    version = depose(a, b)
    with pytest.raises(NotLeaderError):
        a.put(KEY, b"newer", expected_version=version)
    assert b.put(KEY, b"newer", expected_version=version) > version


@pytest.mark.usefixtures("still", "impatient")
def test_demoted_leader_leads_again_with_all_newer_records(two):
    a, b = two
    depose(a, b)
    with pytest.raises(NotLeaderError):
        a.get(KEY)
    a.lead(0)
    assert a.get(KEY).value == b"new"
    with pytest.raises(NotLeaderError):
        b.put(KEY, b"late")


def test_no_two_nodes_depose_each_other_in_a_loop(log, two):
    """Both nodes receive many requests to lead, but a term lasts for two seconds."""
    a, b = two
    a.lead(0)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(each.lead, 0, timeout=1.5) for each in (b, a) * 5]
        failed = [each for each in asked if isinstance(each.exception(SECONDS), NotLeaderError)]
    assert failed
    assert leader_records(log) <= 4  # a node names itself when it tries to lead, and once it does


def test_restarted_leader_leads_again_without_a_request(log, tmp_path):
    with node(log, tmp_path, "a", nodes=NODES) as a:
        a.lead(0)
        a.put(KEY, b"1")
    with node(log, tmp_path, "a", nodes=NODES) as a:
        assert a.get(KEY).value == b"1"


@pytest.mark.usefixtures("impatient")
def test_no_increment_is_lost_while_leaders_change(two):
    nodes = dict(zip(NODES, two, strict=True))

    def increment(number):
        if number % 5 == 0:
            two[number % 2].lead(0)
        while True:
            found = asking(nodes, "get", KEY)
            try:
                value = b"%d" % (int(found.value or 0) + 1)
                return asking(nodes, "put", KEY, value, expected_version=found.version)
            except VersionMismatchError:
                continue

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda number: _led(increment, number), range(30)))) == 30
    assert asking(nodes, "get", KEY).value == b"30"


def _led(increment, number):
    while True:
        try:
            return increment(number)
        except NotLeaderError:
            number = 1  # another node took over first
