"""The backends under chaos: each creates a log, its clients, and its faults."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from spark_cas.log.backend import Backend
from spark_cas.log.open import open_log
from tests.chaos.faults import Fault, Undo, Victim, faults_of
from tests.chaos.kv.places import kv_directory, kv_kafka
from tests.chaos.other_attempts import OtherAttempts
from tests.chaos.place import Place
from tests.chaos.processes import ClientProcess
from tests.chaos.proxied_brokers import proxied_brokers
from tests.chaos.reader import Reader
from tests.chaos.spark.places import spark_directory, spark_kafka
from tests.chaos.threads import ClientThread
from tests.chaos.troubled_store import TROUBLES, StoreTrouble
from tests.chaos.world import OTHER_ATTEMPTS, READERS, SETTINGS, WRITERS, World
from tests.chaos.writer import Writer
from tests.history.recorder import Recorder
from tests.objects.bad_day import BUSY, CUT_OFF, GIVES_UP, SILENT, BadDay, proxy_to
from tests.objects.bad_day import Proxy as StoreProxy
from tests.objects.servers import Served, moto
from tests.objects.versity import gateway
from tests.support.memory_log import MemoryLog

PARTITIONS = 3


def _processes(world: World, seed: int) -> list[Victim]:
    programs = [(name, "tests.chaos.writer") for name in WRITERS]
    programs += [(name, "tests.chaos.other_attempts") for name in OTHER_ATTEMPTS]
    programs += [(name, "tests.chaos.reader") for name in READERS]
    return [
        ClientProcess(name, world.folder, module, [str(world.folder), name, str(seed)]) for name, module in programs
    ]


@contextmanager
def directory(folder: Path, seed: int) -> Iterator[Place]:
    """A log in a directory, whose store fails, is slow, and returns wrong results."""
    world = World(folder, str(folder / "log"), settings=SETTINGS)
    with open_log(world.address) as log:
        log.create(PARTITIONS)
    world.write()
    clients = _processes(world, seed)
    troubles: dict[str, Fault] = {kind: StoreTrouble(world.troubles, kind) for kind in TROUBLES}
    yield Place(clients, faults_of(clients, "client") | troubles, lambda: open_log(world.address))


class BadWeather:
    """A fault of the HTTP server of the store, for all clients."""

    def __init__(self, proxy: StoreProxy, kind: str) -> None:
        self._proxy = proxy
        self._kind = kind

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        if self._proxy.day is not None:
            return None
        method = chance.choice(["", "PUT", "GET"])
        self._proxy.day = BadDay(self._kind, seconds, method, after=chance.random() < 0.5)

        def end() -> None:
            self._proxy.day = None

        return method or "any request", end


@contextmanager
def store(folder: Path, seed: int, server: Callable[[], AbstractContextManager[Served]] = moto) -> Iterator[Place]:
    """A log in an S3 server, accessed through a proxy with faults.

    The store in the clients also returns wrong results.
    """
    with server() as served, proxy_to(served.endpoint) as proxy:
        plain = served.spec()
        settings = dict(plain.store_options) | {"aws_endpoint": proxy.endpoint} | dict(SETTINGS)
        world = World(folder, plain.url, settings=tuple(settings.items()))
        with open_log(plain) as log:
            log.create(PARTITIONS)
        world.write()
        clients = _processes(world, seed)
        faults: dict[str, Fault] = {kind: StoreTrouble(world.troubles, kind) for kind in TROUBLES}
        faults |= {f"http {kind}": BadWeather(proxy, kind) for kind in (SILENT, BUSY, GIVES_UP, CUT_OFF)}
        yield Place(clients, faults_of(clients, "client") | faults, lambda: open_log(plain))


@contextmanager
def kafka(folder: Path, seed: int) -> Iterator[Place]:
    """A topic on three brokers, each accessed through a proxy.

    The replication factor is 3, and min.insync.replicas is 2.
    """
    with proxied_brokers(folder, PARTITIONS) as brokers:
        clients = _processes(brokers.world, seed)
        yield Place(clients, faults_of(clients, "client") | brokers.faults, brokers.open, brokers.calm, brokers.heal)


class LoseReplies:
    """Make calls of a client in memory fail, before or after they take effect."""

    def __init__(self, clients: list[ClientThread]) -> None:
        self._clients = clients

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        client = chance.choice(self._clients)
        client.gate.lossy = chance.uniform(0.02, 0.3)

        def end() -> None:
            client.gate.lossy = 0.0

        return client.name, end


@contextmanager
def memory(folder: Path, seed: int) -> Iterator[Place]:
    """A log in the memory of this process. Its clients are threads."""
    world = World(folder, "", pace=0.005)
    world.write()
    log = MemoryLog("flights")
    log.create(PARTITIONS)

    def write(name: str, log: Backend) -> None:
        with Recorder(world.history / f"{name}.jsonl", name) as recorder:
            Writer(log, world, recorder, seed).run(world.stop.exists)

    def attempt(name: str, log: Backend) -> None:
        with Recorder(world.history / f"{name}.jsonl", name) as recorder:
            OtherAttempts(log, world, recorder, seed).run(world.stop.exists)

    def read(name: str, log: Backend) -> None:
        with Recorder(world.history / f"{name}.jsonl", name) as recorder:
            Reader(log, world, recorder).run(world.stop.exists)

    writers = [ClientThread(each, log, seed, partial(write, each)) for each in WRITERS]
    others = [ClientThread(each, log, seed, partial(attempt, each)) for each in OTHER_ATTEMPTS]
    readers = [ClientThread(each, log, seed, partial(read, each)) for each in READERS]
    clients: list[Victim] = [*writers, *others, *readers]
    faults: dict[str, Fault] = {"lost-replies": LoseReplies([*writers, *others, *readers])}
    yield Place(clients, faults_of(clients, "client") | faults, lambda: log)


STORES = {"kv-directory": kv_directory, "kv-kafka": kv_kafka}
"""The clients of these may have several sessions each."""
PLACES: dict[str, Callable[[Path, int], AbstractContextManager[Place]]] = {
    "memory": memory,
    "directory": directory,
    "store": store,
    "store-versity": partial(store, server=gateway),
    "kafka": kafka,
    **STORES,
    "spark-directory": spark_directory,
    "spark-kafka": spark_kafka,
}
