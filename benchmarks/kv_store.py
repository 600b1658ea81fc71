"""What the key-value store takes of puts, on a broker of its own.

``python -m benchmarks.kv_store [--puts N] [--under-way N]`` prints puts a second and how long one takes, from call to
acknowledgement. Clients are threads of the node's process, each with so many puts under way.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from benchmarks.kafka_broker import CONF
from spark_cas.kv import Node
from spark_cas.log.open import open_log
from spark_cas.testing.kafka_broker import KafkaBroker

SHARDS = 4
_CLIENTS = 2
_VALUE = b"v" * 100
_SECONDS = 60


def puts(node: Node, client: str, count: int, under_way: int) -> list[float]:
    """Put keys, so many under way at once, and return the milliseconds of each."""
    milliseconds: list[float] = []
    waiting: deque[Future[dict[bytes, int]]] = deque()
    for number in range(count):
        if len(waiting) == under_way:
            waiting.popleft().result(_SECONDS)
        begun = time.monotonic()

        def note(_: object, begun: float = begun) -> None:
            milliseconds.append(1000 * (time.monotonic() - begun))

        future = node.submit({f"{client}-{number}".encode(): _VALUE})
        future.add_done_callback(note)
        waiting.append(future)
    for each in waiting:
        each.result(_SECONDS)
    return milliseconds


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kv_store", description=__doc__)
    parser.add_argument("--puts", type=int, default=200_000)
    parser.add_argument("--under-way", type=int, default=300, help="of all clients together")
    given = parser.parse_args()
    # As a process that serves a node is told to.
    sys.setswitchinterval(0.001)
    with KafkaBroker(CONF) as broker, tempfile.TemporaryDirectory() as folder:
        address = f"kafka://{broker.bootstrap}/kv"
        with open_log(address) as log:
            log.create(SHARDS)
        with Node(address, address="a", folder=Path(folder, "a")) as node:
            for shard in range(SHARDS):
                node.lead(shard)
            puts(node, "warm-up", given.puts // 10, given.under_way)
            each, at_once = given.puts // _CLIENTS, given.under_way // _CLIENTS
            begun, worked = time.monotonic(), time.process_time()
            with ThreadPoolExecutor(_CLIENTS) as clients:
                asked = [clients.submit(puts, node, str(client), each, at_once) for client in range(_CLIENTS)]
                taken = [milliseconds for client in asked for milliseconds in client.result()]
            seconds, worked = time.monotonic() - begun, time.process_time() - worked
            quantiles = statistics.quantiles(taken, n=100)
            print(f"{len(taken) / seconds:,.0f} puts/s over {SHARDS} shards, {given.under_way} under way")
            print(f"p50 {quantiles[49]:.1f} ms, p99 {quantiles[98]:.1f} ms")
            print(f"{1e6 * worked / len(taken):.0f} us of processor time a put, clients included")


if __name__ == "__main__":
    main()
