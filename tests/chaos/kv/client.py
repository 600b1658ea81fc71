"""A client of the store: reads, writes and transactions on shared keys, at any node.

``python -m tests.chaos.kv.client WORLD NAME SEED SESSIONS``; it ends when the world's file ``stop`` exists and each
shard has served it since. A session has one operation in progress, and shares no state with the others.

An operation is ``read``, ``write`` or ``transact``, with ``steps`` in the format of ``tests/porcupine/main.go``. The
result of a write has the ``versions`` of its keys, that of a read ``value`` and ``version``, that of a mismatch its
``key`` and the ``actual`` version. The operation ``lead`` makes a node take over.
"""

import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from key_value_store.errors import MayBeStaleError, NotLeaderError
from spark_cas.core.errors import ErrorKind
from spark_cas.core.partitioner import partition_of_key
from tests.chaos.kv.calling import Answer, Caller, NoAnswerError, NotReachedError, Request
from tests.chaos.kv.keys import NODES, READERS, SHARDS, pair_now
from tests.chaos.world import World
from tests.history.operations import FAIL, INFO, OK
from tests.history.recorder import Recorder

_ANSWER_SECONDS, _KAFKA_ANSWER_SECONDS = 1.5, 4.0
"""The request timeouts on object logs and on Kafka. A claim of a topic needs several requests, and each may be
late."""
_READ_SECONDS = 5.0
"""Longer than a node stays frozen: a leader that was demoted while frozen still answers the reads that it
received."""
_LEAD_SECONDS = 4.0
"""Additional time: a node waits up to two seconds before it takes over from another."""
_DEAD_SECONDS = 0.5
"""The longest pause after a `lead` request without a response. A process takes longer to start, and requests from
many sessions without a pause would delay that further."""
_TRIES = 6
_ELSEWHERE_SHARE = 0.15
"""How often a session sends an operation to a random node: that node may be a demoted leader."""
_LEAD_SHARE = 0.03
_DEPOSE_SHARE = 0.05
_BOTH_WEIGHT = 10
"""The shares of a client with one session; several sessions divide them. Such an operation takes the shards from all
other sessions, whose concurrent reads and writes a leader otherwise serves together."""

_OF_ERRORS = ("kind", "told", "key", "actual")

Step = Mapping[str, Any]
Told = tuple[str, dict[str, Any]]


class Session:
    """The operations of one session."""

    def __init__(self, world: World, recorder: Recorder, name: str, sessions: int) -> None:
        """Create a session.

        ``name`` is unique in the run, including the sessions of earlier processes of the client.
        """
        self._world = world
        self._recorder = recorder
        self._name = name
        self._sessions = sessions
        self._chance = random.Random(name)
        self._caller = Caller()
        self._leaders = dict.fromkeys(range(SHARDS), NODES[0])
        self._versions: dict[str, int | None] = {}
        self._values = 0
        self._only_reads = recorder.process in READERS
        self._seconds = _KAFKA_ANSWER_SECONDS if world.topic else _ANSWER_SECONDS

    def run(self, stopped: Callable[[], bool]) -> None:
        """Run operations until it is stopped."""
        while not stopped():
            if not self._only_reads and self._chance.random() < _DEPOSE_SHARE / self._sessions:
                self._depose()
            else:
                self._do(self._next())
            if not self._only_reads:
                time.sleep(self._chance.uniform(0, 2 * self._world.pace))

    def end(self, orphaned: Callable[[], bool]) -> None:
        """After the last fault, retry until each shard has served a read.

        If this client writes, also retry until each shard has accepted a write.
        """
        for shard in range(SHARDS):
            for way in ["get"] if self._only_reads else ["put", "get"]:
                while not orphaned() and self._do([self._step(way, self._pair()[shard])]) != OK:
                    time.sleep(self._chance.uniform(0, 2 * self._world.pace))

    def _do(self, steps: Sequence[Step]) -> str:
        number = self._recorder.start(_name(steps), {"steps": steps})
        event, result = self._ask(steps)
        self._recorder.finish(number, event, result)
        if event == OK:
            self._versions |= result.get("versions", {steps[0]["key"]: result.get("version")})
        return event

    def _depose(self) -> None:
        """Write a key at a leader and then at its successor, and send the first one a transaction.

        The transaction expects the version that the first leader wrote. The first leader may not know of its
        successor yet.
        """
        key, other = self._pair()
        shard = partition_of_key(key.encode(), SHARDS)
        self._do([self._step("put", key)])
        deposed, transaction = self._leaders[shard], [self._step("cas", key), self._step("put", other)]
        self._lead(self._another(deposed), shard)
        self._do([self._step("put", key)])
        self._leaders[shard] = deposed
        self._do(transaction)

    def _pair(self) -> tuple[str, str]:
        return pair_now(self._chance.random(), self._sessions)

    def _next(self) -> list[Step]:
        first, second = self._pair()
        key = self._chance.choice([first, second])
        ways = ["get", "put", "delete", "cas", "remove", "both"]
        [way] = self._chance.choices(ways, [36, 20, 6, 24, 4, _BOTH_WEIGHT / self._sessions])
        if self._only_reads:
            way = "get"
        if way != "both":
            return [self._step(way, key)]
        ways = ["put", "cas", "delete", "remove"]
        other = second if key == first else first
        return [self._step(self._chance.choice(ways), key), self._step(self._chance.choice([*ways, "check"]), other)]

    def _step(self, way: str, key: str) -> Step:
        step: dict[str, Any] = {"op": way, "key": key}
        if way in ("put", "cas"):
            self._values += 1
            step["value"] = f"{self._name}.{self._values}"
        if way in ("cas", "remove", "check"):
            step["expected"] = self._versions.get(key)
        return step

    def _ask(self, steps: Sequence[Step]) -> Told:
        shard = _shard(steps[0])
        request = _request(steps, self._seconds)
        if self._chance.random() < _LEAD_SHARE / self._sessions:
            self._lead(self._chance.choice(NODES), shard)
        if self._chance.random() < _ELSEWHERE_SHARE / self._sessions:
            self._leaders[shard] = self._chance.choice(NODES)
        for _ in range(_TRIES):
            node = self._leaders[shard]
            try:
                answer = self._call(node, request)
            except NotReachedError:
                self._have_another_lead(node, shard)
                continue
            except NoAnswerError:
                self._have_another_lead(node, shard)
                return INFO, {"kind": "NO_ANSWER"}
            if answer.get("kind") != NotLeaderError.kind:
                return _told(steps, answer)
            # The node wrote nothing, so sending the request to another node is the same operation.
            self._leaders[shard] = answer["leader"] or self._another(node)
            if self._leaders[shard] == node:
                time.sleep(self._chance.uniform(0, 4 * self._world.pace))
        return FAIL, {"kind": NotLeaderError.kind}

    def _have_another_lead(self, node: str, shard: int) -> None:
        self._lead(self._another(node), shard)

    def _lead(self, node: str, shard: int) -> None:
        self._leaders[shard] = node
        number = self._recorder.start("lead", {"node": node, "shard": shard})
        try:
            answer = self._call(node, {"call": "lead", "shard": shard, "timeout": self._seconds + _LEAD_SECONDS})
        except (NotReachedError, NoAnswerError):
            self._recorder.finish(number, INFO, {"kind": "NO_ANSWER"})
            time.sleep(self._chance.uniform(0, _DEAD_SECONDS))
        else:
            self._leaders[shard] = answer.get("leader") or node
            told = {name: answer[name] for name in ("kind", "told") if name in answer}
            self._recorder.finish(number, FAIL if told else OK, told)

    def _another(self, node: str) -> str:
        return self._chance.choice([each for each in NODES if each != node])

    def _call(self, node: str, request: Request) -> Answer:
        # The node times out first, so that it can report the known state.
        return self._caller.call(self._world.folder / f"{node}.port", request, request["timeout"] + 0.5)


def _name(steps: Sequence[Step]) -> str:
    if len(steps) > 1:
        return "transact"
    return "read" if steps[0]["op"] == "get" else "write"


def _shard(step: Step) -> int:
    return partition_of_key(step["key"].encode(), SHARDS)


def _request(steps: Sequence[Step], seconds: float) -> Request:
    if steps[0]["op"] == "get":
        return {"call": "get", "key": steps[0]["key"].encode(), "timeout": _READ_SECONDS}
    return {
        "call": "transact",
        "writes": {
            each["key"].encode(): each["value"].encode() if "value" in each else None
            for each in steps
            if each["op"] != "check"
        },
        "expected_versions": {each["key"].encode(): each["expected"] for each in steps if "expected" in each},
        "timeout": seconds if len(steps) == 1 else seconds + _LEAD_SECONDS,
    }


def _told(steps: Sequence[Step], answer: Answer) -> Told:
    if "kind" in answer:
        # `key_value_store.Node` guarantees that nothing was written for any other error.
        unknown = answer["kind"] in (ErrorKind.UNKNOWN_OUTCOME, MayBeStaleError.kind)
        return (INFO if unknown else FAIL), {name: answer[name] for name in _OF_ERRORS if name in answer}
    if steps[0]["op"] == "get":
        value, version = answer["result"]
        return OK, {"value": (value or b"").decode(), "version": version}
    return OK, {"versions": {key.decode(): version for key, version in answer["result"].items()}}


def main(folder: str, name: str, seed: str, sessions: str) -> None:
    """Run until the world stops and the store has recovered."""
    world = World.read(Path(folder))
    count = int(sessions)
    stopped, orphaned = world.stopped(), world.orphaned()
    file = world.history / f"{name}.jsonl"
    with Recorder(file, name) as recorder:
        # Each operation adds a line to the history, so a restarted process gets another number here.
        before = file.stat().st_size

        def run(session: Session) -> None:
            try:
                session.run(stopped)
                session.end(orphaned)
            except BaseException:  # noqa: BLE001 - the traceback reports it
                # This is a defect. The process exits, and the run reports it.
                traceback.print_exc()
                os._exit(1)

        asking = [Session(world, recorder, f"{seed}/{name}/{before}/{at}", count) for at in range(count)]
        threads = [Thread(target=run, args=(each,)) for each in asking]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
