"""Loads in local mode during which a broker is suspended, or killed and restarted.

For each case, `python -m benchmarks.bad_day` prints the duration of our load and of the load of Spark's own sink, and
the number of its rows in the topic. `--nodes 3` suspends each of three nodes in turn for a minute. Among them are the
leaders, the coordinators and the controller.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

from pyspark.sql import DataFrame, SparkSession

from benchmarks.kafka_broker import CONF, Topics
from benchmarks.kafka_writing import sink_into
from benchmarks.rows import in_partitions, make_rows
from benchmarks.session import start_session
from spark_cas import route
from tools.kafka_broker import KafkaCluster
from tools.kafka_broker.connector import connector_jars
from tools.kafka_broker.node import KafkaNode

ROWS = 2_000_000
INTO_SECONDS = 2.0
"""Delay from the start of the load to the fault."""
GONE_SECONDS = 20.0
STOPS = (8.0, 25.0, 60.0, 100.0)
NODE_STOPS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """A fault of a node."""

    name: str
    node: int
    begin: Callable[[KafkaNode], None]
    end: Callable[[KafkaNode], None]
    seconds: float


def suspended(seconds: float, node: int = 1) -> Case:
    """Return a case in which a signal suspends the node."""
    return Case(f"node {node} is suspended for {seconds:.0f} s", node, KafkaNode.freeze, KafkaNode.thaw, seconds)


NOTHING = Case("nothing", 1, lambda _: None, lambda _: None, 0.1)
KILLED = Case(
    f"node 1 is killed and started again after {GONE_SECONDS:.0f} s",
    1,
    KafkaNode.kill,
    KafkaNode.restart,
    GONE_SECONDS,
)
ONE_BY_ONE = (NOTHING, *(suspended(each) for each in STOPS), KILLED)


def main(argv: Sequence[str]) -> int:
    """Run the cases for both sides. Return 1 if a load of ours failed, or if its number of rows is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bad_day", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--without-peer", action="store_true", help="ours alone")
    parser.add_argument("--nodes", type=int, default=1)
    given = parser.parse_args(argv)
    cases = ONE_BY_ONE if given.nodes == 1 else [suspended(NODE_STOPS_SECONDS, 1 + n) for n in range(given.nodes)]
    spark = start_session(connector_jars())
    sides = {"ours": _append_routed} if given.without_peer else {"ours": _append_routed, "peer": _sink}
    failed = False
    with TemporaryDirectory() as folder, KafkaCluster(CONF, given.nodes, measured=True) as cluster:
        rows = make_rows(spark, Path(folder) / "rows", given.rows)
        for write in sides.values():
            _run(spark, cluster, NOTHING, rows, write)  # the JVM warms up
        for case in cases:
            for side, write in sides.items():
                said = _run(spark, cluster, case, rows, write)
                print(f"{case.name}, {side}: {said}", flush=True)
                failed = failed or (side == "ours" and not said.endswith(f" {given.rows} rows"))
    spark.stop()
    return int(failed)


def _append_routed(rows: DataFrame, options: dict[str, str]) -> None:
    """Write as users do: `route` reads the layout first."""
    ours = {**options, "job": "bad-day"}
    route(rows.drop("partition"), ours).write.format("conditional-log").mode("append").options(**ours).save()


def _sink(rows: DataFrame, options: dict[str, str]) -> None:
    sink_into(in_partitions(rows), options)


def _run(
    spark: SparkSession,
    cluster: KafkaCluster,
    case: Case,
    rows: DataFrame,
    write: Callable[[DataFrame, dict[str, str]], None],
) -> str:
    topics, node = Topics(cluster.bootstrap), cluster.node(case.node)
    topic = topics.fresh()

    def strike() -> None:
        case.begin(node)
        time.sleep(case.seconds)
        case.end(node)

    timer = Timer(INTO_SECONDS, strike)
    timer.start()
    began = time.monotonic()
    try:
        write(rows, topics.options(topic))
        ended = "ended well"
    except Exception as error:  # noqa: BLE001 - the next case runs after any error
        ended = f"failed ({str(error).strip().splitlines()[0]})"
    seconds = time.monotonic() - began
    timer.join()
    committed = {"subscribe": topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    found = spark.read.format("kafka").options(**topics.options(topic, **committed)).load().count()
    return f"{ended} after {seconds:.1f} s, {found} rows"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
