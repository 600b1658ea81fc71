"""The throughput and latency of puts to the key-value store, on its own broker.

``python -m benchmarks.kv_store [--nodes N] [--puts N] [--under-way N]`` prints puts per second, and the latency from
call to acknowledgement. Each node is a process with an equal share of the shards, which no other node follows. A
client in the process keeps its share of the concurrent puts in flight.
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Collection
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from benchmarks.kafka_broker import CONF
from key_value_store import Node
from spark_cas.core.partitioner import partition_of_key
from spark_cas.log.open import open_log
from tools.kafka_broker import KafkaBroker

SHARDS = 4
_VALUE = b"v" * 100
_SECONDS = 60


class Client:
    """A client with up to ``under_way`` concurrent puts."""

    def __init__(self, node: Node, under_way: int) -> None:
        self._node = node
        self._under_way = under_way
        self._ended: SimpleQueue[Future[dict[bytes, int]]] = SimpleQueue()
        self.milliseconds: list[float] = []

    def put(self, keys: Collection[bytes]) -> None:
        """Put keys, and return when all are acknowledged. Raises the errors of a put."""
        waiting = 0
        for key in keys:
            if waiting == self._under_way:
                self._ended.get(timeout=_SECONDS).result()
                waiting -= 1
            future = self._node.submit({key: _VALUE})
            future.add_done_callback(partial(self._note, time.monotonic()))
            waiting += 1
        for _ in range(waiting):
            self._ended.get(timeout=_SECONDS).result()

    def _note(self, begun: float, future: Future[dict[bytes, int]]) -> None:
        self.milliseconds.append(1000 * (time.monotonic() - begun))
        self._ended.put(future)


def keys_of(name: str, shards: Collection[int], count: int) -> list[bytes]:
    """Return ``count`` keys of these shards."""
    keys: list[bytes] = []
    number = 0
    while len(keys) < count:
        key = f"{name}-{number}".encode()
        if partition_of_key(key, SHARDS) in shards:
            keys.append(key)
        number += 1
    return keys


def serve(address: str, folder: str, name: str, shards: Collection[int], told: Connection) -> None:
    """Run a node. Receive the number of puts and of concurrent puts, and send each latency and the CPU time."""
    # As examples/key_value_store/README.md recommends for a process that serves a node.
    sys.setswitchinterval(0.001)
    with Node(address, address=name, folder=folder, shards=shards) as node:
        for shard in shards:
            node.lead(shard)
        told.send(None)
        for run in range(2):
            count, under_way = told.recv()
            keys = keys_of(f"{name}-{run}", shards, count)
            told.send(None)
            told.recv()
            client, worked = Client(node, under_way), time.process_time()
            client.put(keys)
            told.send((client.milliseconds, time.process_time() - worked))


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kv_store", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 2, 4))
    parser.add_argument("--puts", type=int, default=200_000)
    parser.add_argument("--under-way", type=int, default=300, help="of all clients together")
    given = parser.parse_args()
    spawned = multiprocessing.get_context("spawn")
    with KafkaBroker(CONF) as broker, tempfile.TemporaryDirectory() as folder:
        address = f"kafka://{broker.bootstrap}/kv"
        with open_log(address) as log:
            log.create(SHARDS)
        nodes = []
        for number in range(given.nodes):
            ours, theirs = spawned.Pipe()
            name, shards = f"node-{number}", tuple(range(number, SHARDS, given.nodes))
            node = spawned.Process(
                target=serve, args=(address, str(Path(folder, name)), name, shards, theirs), daemon=True
            )
            node.start()
            theirs.close()
            nodes.append((node, ours))

        def all_told() -> list[Any]:
            return [told.recv() for _, told in nodes]

        all_told()
        # The first run warms up.
        for puts in (given.puts // 10, given.puts):
            for _, told in nodes:
                told.send((puts // given.nodes, given.under_way // given.nodes))
            all_told()
            begun = time.monotonic()
            for _, told in nodes:
                told.send(None)
            results = all_told()
            seconds = time.monotonic() - begun
        for node, _ in nodes:
            node.join()
    taken = [milliseconds for each, _ in results for milliseconds in each]
    quantiles = statistics.quantiles(taken, n=100)
    worked = sum(seconds for _, seconds in results)
    print(
        f"{len(taken) / seconds:,.0f} puts/s over {SHARDS} shards of {given.nodes} nodes, {given.under_way} in flight"
    )
    print(f"p50 {quantiles[49]:.1f} ms, p99 {quantiles[98]:.1f} ms")
    print(f"{1e6 * worked / len(taken):.0f} us of the nodes' processor time a put, clients included")


if __name__ == "__main__":
    main()
