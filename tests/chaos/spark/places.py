"""Spark under chaos: loads and a stream on a cluster of two workers, beside a writer and a reader without Spark."""

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
"""A load by Spark takes seconds: where others append all the time, none that expects an offset would come through."""
END_SECONDS = 240.0
"""On busy cores a driver that was killed last needs more than a minute until its executors are at work again."""
_ROOT = Path(__file__).parents[3]
_CORES = 3
"""Of each worker: an executor of each driver, and one of a driver that was killed and is not gone yet."""


@contextmanager
def spark_directory(folder: Path, seed: int) -> Iterator[Place]:
    """Over a log in a directory, whose store fails, is slow and lies, to whatever Spark starts as well."""
    world = World(folder, str(folder / "log"), settings=SETTINGS, pace=PACE_SECONDS)
    with open_log(world.address) as log:
        log.create(PARTITIONS)
    world.write()
    troubles: dict[str, Fault] = {kind: StoreTrouble(world.troubles, kind) for kind in TROUBLES}
    with _on_spark(world, seed, lambda: open_log(world.address), troubles) as place:
        yield place


@contextmanager
def spark_kafka(folder: Path, seed: int) -> Iterator[Place]:
    """Over a topic of three brokers, replication 3, two in sync, each behind a proxy."""
    with (
        proxied_brokers(folder, PARTITIONS, PACE_SECONDS) as brokers,
        _on_spark(brokers.world, seed, brokers.open, brokers.faults, calm=brokers.calm, heal=brokers.heal) as place,
    ):
        yield place


def troubled(troubles: Path) -> dict[str, str]:
    """The variables that all that Spark starts inherits, and is known by: their stores meet these troubles."""
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
    """The cluster and all clients. No partition is added: a stream does not go on behind an expansion."""
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
