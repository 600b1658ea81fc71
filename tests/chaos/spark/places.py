"""Spark under chaos: loads and a stream on a cluster of two workers, with a writer and a reader outside Spark."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_cas.log.backend import Backend
from spark_cas.log.open import open_log
from tests.chaos.aborting import AbortWhole
from tests.chaos.faults import Fault, faults_of
from tests.chaos.place import Place
from tests.chaos.processes import ClientProcess
from tests.chaos.proxied_brokers import proxied_brokers
from tests.chaos.spark.driver import DriverProcess
from tests.chaos.spark.executors import process_faults
from tests.chaos.spark.judging import STREAMER, judge
from tests.chaos.troubled_store import TROUBLES, StoreTrouble
from tests.chaos.world import SETTINGS, World
from tests.marked import end_marked
from tests.spark_cluster import Cluster, spark_environment

PARTITIONS = 4
PACE_SECONDS = 0.7
"""The average pause of a client after an operation (s). A Spark load takes seconds: with constant appends by others,
no load with an expected offset would succeed."""
END_SECONDS = 240.0
"""On busy cores, the executors of a driver that was killed last need more than a minute to start."""
_ROOT = Path(__file__).parents[3]
_CORES = 3
"""The cores of each worker: for an executor of each driver, and one of a killed driver that has not exited yet."""


@contextmanager
def spark_directory(folder: Path, seed: int) -> Iterator[Place]:
    """Spark over a log in a directory.

    The store fails, is slow and returns wrong results, also in the processes that Spark starts.
    """
    world = World(folder, str(folder / "log"), settings=SETTINGS, pace=PACE_SECONDS)
    with open_log(world.address) as log:
        log.create(PARTITIONS)
    world.write()
    troubles: dict[str, Fault] = {kind: StoreTrouble(world.troubles, kind) for kind in TROUBLES}
    with _on_spark(world, seed, lambda: open_log(world.address), troubles) as place:
        yield place


@contextmanager
def spark_kafka(folder: Path, seed: int) -> Iterator[Place]:
    """Spark over a topic on three brokers, each accessed through a proxy.

    The replication factor is 3, and min.insync.replicas is 2.
    """
    with (
        proxied_brokers(folder, PARTITIONS, PACE_SECONDS) as brokers,
        _on_spark(brokers.world, seed, brokers.open, brokers.faults, calm=brokers.calm, heal=brokers.heal) as place,
    ):
        yield place


def troubled(troubles: Path) -> dict[str, str]:
    """Return environment variables that add store faults to all processes that Spark starts, and identify these."""
    paths = [str(Path(__file__).parent / "workers"), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"SPARK_CAS_TROUBLES": str(troubles), "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def _on_spark(
    world: World,
    seed: int,
    open_: Callable[[], Backend],
    faults: Mapping[str, Fault],
    *,
    calm: Callable[[], None] = lambda: None,
    heal: Callable[[], None] = lambda: None,
) -> Iterator[Place]:
    """Yield the cluster and all clients.

    No partition is added, because a stream does not continue after an expansion.
    """
    folder = world.folder
    marks = troubled(world.troubles)
    try:
        with Cluster(folder / "spark", marks, cores=_CORES) as cluster:
            conf = {**cluster.conf, "spark.cores.max": "2", "spark.local.dir": str(folder / "spark" / "scratch")}
            environment = spark_environment(marks, "127.0.0.1", cluster.folder)

            def driver(name: str) -> DriverProcess:
                arguments = [str(folder), name, str(seed), json.dumps(conf)]
                return DriverProcess(name, world, f"tests.chaos.spark.{name}", arguments, environment)

            def client(name: str, module: str) -> ClientProcess:
                return ClientProcess(name, folder, module, [str(folder), name, str(seed)])

            drivers = [driver("loader"), driver(STREAMER)]
            others = [client("w1", "tests.chaos.writer"), client("r1", "tests.chaos.reader")]
            abort = AbortWhole(world.history, open_, "[lw]*")

            def roots() -> list[int]:
                return [*cluster.worker_pids, *(each.pid for each in drivers if each.pid is not None)]

            def heal_all() -> None:
                heal()
                abort.finish()

            of_spark = faults_of([*drivers], "driver") | process_faults(roots) | {"abort-whole": abort}
            yield Place(
                [*drivers, *others],
                {**faults_of([*others], "client"), **of_spark, **faults},
                open_,
                calm,
                heal_all,
                is_shared=False,
                judge=judge,
                end_seconds=END_SECONDS,
            )
    finally:
        end_marked(marks)
