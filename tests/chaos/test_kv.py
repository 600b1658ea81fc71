"""The key-value store under chaos, for some seconds per seed; and the histories that Porcupine checks."""

import pytest

from spark_cas.core.partitioner import partition_of_key
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.chaos import world
from tests.chaos.__main__ import main
from tests.chaos.kv import node
from tests.chaos.kv.client import Session
from tests.chaos.kv.judging import LINEARIZABLE, judge, registers
from tests.chaos.kv.keys import READERS, SHARDS, WRITERS, pair
from tests.chaos.kv.written import WRITTEN, written
from tests.chaos.world import World
from tests.history.operations import FAIL, INFO, OK, Operation, read_history
from tests.history.recorder import Recorder
from tests.history.records import Found, Record
from tests.long import full

pytestmark = pytest.mark.timeout(400)


def run(backend, seed, seconds, sessions, *, folder):
    """Run chaos from the command line; require that all properties hold and reads, writes and faults occurred."""
    told = ["--seed", str(seed), "--seconds", str(seconds), "--sessions", str(sessions)]
    code = main(["--backend", backend, *told, "--into", str(folder)])
    [left] = folder.iterdir()
    assert code == 0, (left / "violations.txt").read_text()
    history = read_history(left / "history")
    acknowledged = {each.name for each in history if each.outcome == OK}
    assert {"read", "write", "fault"} <= acknowledged
    assert all(f">{name}</text>" in (left / "timeline.html").read_text() for name in ("c1", "n1"))


@pytest.mark.parametrize("chosen", [(1, 12, 8), *full((2, 60, 1), (3, 60, 16))])
def test_a_store_in_a_directory_keeps_its_promises(chosen, tmp_path):
    run("kv-directory", *chosen, folder=tmp_path)


@pytest.mark.kafka
@pytest.mark.parametrize("chosen", full((2, 60, 1), (3, 60, 16)))
def test_a_store_on_three_brokers_keeps_its_promises(chosen, tmp_path):
    run("kv-kafka", *chosen, folder=tmp_path)


def test_client_id_names_the_node(tmp_path, monkeypatch):
    """The simulated demotion of leaders distinguishes recent claims by the client id."""
    specs: list[KafkaSpec] = []
    monkeypatch.setattr(world, "KafkaLog", specs.append)
    monkeypatch.setattr(node, "Node", lambda opens, **_: opens())
    node.opened(World(tmp_path, "127.0.0.1:1", "flights"), "n1")
    assert [dict(each.client_options)["client.id"] for each in specs] == ["n1"]


@pytest.mark.parametrize("name", [*WRITERS, *READERS])
def test_a_client_ends_once_each_shard_has_served_it(tmp_path, monkeypatch, name):
    answers = iter([{"kind": "NOT_LEADER", "leader": None}] * 20)

    def call(_session, _node, request):
        if request["call"] == "lead":
            return {}
        return next(
            answers, {"result": ("", None) if request["call"] == "get" else dict.fromkeys(request["writes"], 1)}
        )

    monkeypatch.setattr(Session, "_call", call)
    asks = World(tmp_path, "", pace=0.0)
    asks.history.mkdir()
    with Recorder(asks.history_of(name), name) as recorder:
        Session(asks, recorder, name, 1).end(lambda: False)
    found = [each for each in read_history(asks.history) if each.outcome == OK and each.name != "lead"]
    shards = [(each.name, partition_of_key(each.arguments["steps"][0]["key"].encode(), SHARDS)) for each in found]
    names = ["read"] if name in READERS else ["write", "read"]
    assert shards == [(each, shard) for shard in range(SHARDS) for each in names]


def test_client_of_an_unavailable_store_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(Session, "_call", lambda *_: {"kind": "NOT_LEADER", "told": "", "leader": None})
    asks = World(tmp_path, "", pace=0.0)
    asks.history.mkdir()
    orphaned = iter([False, False, True, True, True, True])
    with Recorder(asks.history_of("c1"), "c1") as recorder:
        Session(asks, recorder, "c1", 1).end(lambda: next(orphaned))
    asked = [each for each in read_history(asks.history) if each.name == "write"]
    assert [each.outcome for each in asked] == [FAIL, FAIL]
    assert next(orphaned, None) is None


def test_the_keys_of_a_pair_are_of_different_shards():
    pairs = [pair(generation, number) for generation in range(20) for number in range(2)]
    assert [tuple(partition_of_key(key.encode(), SHARDS) for key in each) for each in pairs] == [(0, 1)] * 40
    assert len({key for each in pairs for key in each}) == 80


def put(start, value, *, end=None, outcome=INFO, **result):
    steps = [{"op": "put", "key": "k", "value": value}]
    return Operation("c1", "write", {"steps": steps}, start, end, outcome, result)


def read(start, value, version):
    arguments = {"steps": [{"op": "get", "key": "k"}]}
    return Operation("c2", "read", arguments, start, start + 1, OK, {"value": value, "version": version})


def holding(*values):
    """Return a log with these values of a key at consecutive offsets; None is a gap."""
    return {0: [Found(at, Record("k", value)) for at, value in enumerate(values) if value is not None]}


FIRST = put(1, "a", end=2, outcome=OK, versions={"k": 0})


def test_final_log_is_judged():
    assert judge([FIRST], holding("a")) == []
    assert LINEARIZABLE in [each.number for each in judge([FIRST], holding())]
    assert "not linearizable: k" in [each.told for each in judge([FIRST], holding("a", "a"))]
    assert judge([FIRST, put(3, "b")], holding("a", "b")) == []
    assert judge([FIRST, put(3, "b")], holding("a")) == []


def test_a_deletion_in_the_log_is_an_absent_key():
    deleted = Operation("c1", "write", {"steps": [{"op": "delete", "key": "k"}]}, 3, 4, OK, {"versions": {"k": 1}})
    assert judge([FIRST, deleted], holding("a", "")) == []
    assert judge([FIRST], holding("a", "")) != []


def test_failed_write_is_not_in_the_log():
    failed = put(3, "b", end=4, outcome=FAIL, kind="STORAGE")
    assert judge([FIRST, failed], holding("a")) == []
    assert judge([FIRST, failed], holding("a", "b")) != []


def test_stale_read_is_detected():
    second = put(3, "b", end=4, outcome=OK, versions={"k": 1})
    assert judge([FIRST, second, read(5, "b", 1)], holding("a", "b")) == []
    assert judge([FIRST, second, read(5, "a", 0)], holding("a", "b")) != []


def test_wrong_mismatch_is_detected():
    steps = [{"op": "cas", "key": "k", "value": "b", "expected": 0}]
    refused = Operation("c1", "write", {"steps": steps}, 3, 4, FAIL, mismatch("k", None))
    assert registers([refused], {})[0]["mismatch"] is True
    assert judge([FIRST, refused], holding("a")) != []
    assert judge([refused], holding()) == []


def mismatch(key, actual):
    return {"kind": "VERSION_MISMATCH", "key": key, "actual": actual}


def test_mismatch_reports_the_version_at_that_time():
    second = put(3, "b", end=4, outcome=OK, versions={"k": 1})
    steps = [{"op": "check", "key": "k", "expected": 7}, {"op": "put", "key": "x", "value": "c"}]
    for actual, key, is_so in [(1, "k", True), (0, "k", False), (None, "k", False), (7, "k", False), (1, "x", False)]:
        refused = Operation("c1", "transact", {"steps": steps}, 5, 6, FAIL, mismatch(key, actual))
        assert (judge([FIRST, second, refused], holding("a", "b")) == []) is is_so


def told_of(history, log):
    """Return the numbers of the violations that `written` finds."""
    return [each.number for each in written(history, log)]


LAST = put(8, "z", end=9, outcome=OK, versions={"k": 2})


def test_19_overwritten_value_is_once_at_its_reported_version():
    assert told_of([FIRST, LAST], holding("a", None, "z")) == []
    assert WRITTEN in told_of([FIRST, LAST], holding(None, None, "z"))
    assert WRITTEN in told_of([FIRST, LAST], holding("a", "a", "z"))
    assert WRITTEN in told_of([FIRST, LAST], holding(None, "a", "z"))
    assert [each.number for each in judge([FIRST, LAST], holding("a", "a", "z"))] == [WRITTEN]


def test_19_write_of_unknown_outcome_is_in_the_log_once_or_never():
    unheard = put(3, "b")
    assert told_of([FIRST, unheard, LAST], holding("a", None, "z")) == []
    assert told_of([FIRST, unheard, LAST], holding("a", "b", "z")) == []
    assert told_of([FIRST, unheard, LAST], holding("a", "b", "z", "b")) == [WRITTEN]


def test_19_failed_and_unrequested_writes_are_not_in_the_log():
    failed = put(3, "b", end=4, outcome=FAIL, kind="STORAGE")
    assert told_of([FIRST, failed, LAST], holding("a", None, "z")) == []
    assert told_of([FIRST, failed, LAST], holding("a", "b", "z")) == [WRITTEN]
    assert told_of([FIRST, LAST], holding("a", "b", "z")) == [WRITTEN]
    assert told_of([], {0: [Found(0, Record("spark_cas.kv/leader", ""))]}) == []


def test_19_deletions_of_a_key_are_counted():
    steps = {"steps": [{"op": "delete", "key": "k"}]}
    deleted = Operation("c1", "write", steps, 3, 4, OK, {"versions": {"k": 1}})
    unheard = Operation("c1", "write", steps, 5)
    assert told_of([FIRST, deleted, LAST], holding("a", "", "z")) == []
    assert told_of([FIRST, deleted, LAST], holding("a", "", "z", "")) == [WRITTEN]
    assert told_of([FIRST, deleted, unheard, LAST], holding("a", "", "z", "")) == []
    assert WRITTEN in told_of([FIRST, deleted, deleted, LAST], holding("a", "", "z"))


def test_19_transaction_of_unknown_outcome_is_complete():
    steps = [{"op": "put", "key": "k", "value": "b"}, {"op": "put", "key": "j", "value": "c"}]
    unheard = Operation("c1", "transact", {"steps": steps}, 3)
    other = Found(3, Record("j", "c"))
    assert told_of([FIRST, unheard, LAST], holding("a", None, "z")) == []
    assert told_of([FIRST, unheard, LAST], {0: [*holding("a", "b", "z")[0], other]}) == []
    assert told_of([FIRST, unheard, LAST], holding("a", "b", "z")) == [WRITTEN]
    steps = [{"op": "delete", "key": "k"}, {"op": "put", "key": "j", "value": "c"}]
    unheard = Operation("c1", "transact", {"steps": steps}, 3)
    assert told_of([FIRST, unheard, LAST], {0: [*holding("a", "", "z")[0], other]}) == []
    assert told_of([FIRST, unheard, LAST], {0: [*holding("a", None, "z")[0], other]}) == [WRITTEN]


def test_19_the_version_of_a_mismatch_is_one_that_the_key_had():
    steps = [{"op": "cas", "key": "k", "value": "b", "expected": 7}]
    unheard = put(3, "b")
    for actual, is_so in [(1, True), (3, False), (None, True), (7, False)]:
        refused = Operation("c1", "write", {"steps": steps}, 5, 6, FAIL, mismatch("k", actual))
        assert (told_of([FIRST, unheard, refused, LAST], holding("a", "b", "z")) == []) is is_so
