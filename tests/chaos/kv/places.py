"""The store under chaos: nodes are killed and frozen, and clients then switch to another node."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_cas.log.open import open_log
from tests.chaos.faults import Fault, Victim, faults_of
from tests.chaos.kv.judging import judge
from tests.chaos.kv.keys import NODES, READERS, SHARDS, WRITERS
from tests.chaos.place import Place
from tests.chaos.processes import ClientProcess
from tests.chaos.proxied_brokers import proxied_brokers
from tests.chaos.troubled_store import FAILING, SLOW, StoreTrouble
from tests.chaos.world import SETTINGS, World
from tests.porcupine.checking import built

_TROUBLES = (SLOW, FAILING, "lost-replies")
"""Only few store faults, so that faults often hit nodes. The chaos runs of the log cover all types of puts."""


def _nodes(folder: Path) -> list[Victim]:
    return [ClientProcess(each, folder, "tests.chaos.kv.node", [str(folder), each]) for each in NODES]


def _clients(folder: Path, seed: int, sessions: int) -> list[Victim]:
    module = "tests.chaos.kv.client"
    return [
        ClientProcess(each, folder, module, [str(folder), each, str(seed), str(sessions)])
        for each in (*WRITERS, *READERS)
    ]


@contextmanager
def kv_directory(folder: Path, seed: int, sessions: int = 1) -> Iterator[Place]:
    """The store over a log in a directory with store faults.

    Raises CheckerFailedError or MissingProgramError without Go.
    """
    built()
    world = World(folder, str(folder / "log"), settings=SETTINGS)
    with open_log(world.address) as log:
        log.create(SHARDS)
    world.write()
    nodes, clients = _nodes(folder), _clients(folder, seed, sessions)
    troubles: dict[str, Fault] = {kind: StoreTrouble(world.troubles, kind) for kind in _TROUBLES}
    faults = faults_of(clients, "client") | faults_of(nodes, "store-node") | troubles
    yield Place(clients, faults, lambda: open_log(world.address), servers=nodes, is_shared=False, judge=judge)


@contextmanager
def kv_kafka(folder: Path, seed: int, sessions: int = 1) -> Iterator[Place]:
    """The store over a topic on three brokers. Raises CheckerFailedError or MissingProgramError without Go."""
    built()
    with proxied_brokers(folder, SHARDS) as brokers:
        nodes, clients = _nodes(folder), _clients(folder, seed, sessions)
        faults = faults_of(clients, "client") | faults_of(nodes, "store-node") | brokers.faults
        yield Place(clients, faults, brokers.open, brokers.calm, brokers.heal, nodes, is_shared=False, judge=judge)
