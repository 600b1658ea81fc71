"""The time from the kill of a leader to the next acknowledged put of the key-value store, on its own broker.

``python -m benchmarks.kv_killed [--times N]`` prints each time. The leader is a process that puts continuously. After
its death, the benchmark immediately calls `lead` at the other node, as after a client's refused connection.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.kafka_broker import CONF
from key_value_store import Node
from spark_cas.log.open import open_log
from tools.kafka_broker import KafkaBroker

_LEADS_SECONDS = 5.0


def lead(address: str, folder: str, name: str, leads: Event) -> None:
    """Lead the shard, and put until killed."""
    with Node(address, address=name, folder=folder) as node:
        node.lead(0)
        node.put(b"key", b"value")
        leads.set()
        while True:
            node.put(b"key", b"value")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kv_killed", description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    spawned = multiprocessing.get_context("spawn")
    taken = []
    with KafkaBroker(CONF) as broker, tempfile.TemporaryDirectory() as folder:
        address = f"kafka://{broker.bootstrap}/kv"
        with open_log(address) as log:
            log.create(1)
        with Node(address, address="b", folder=Path(folder, "b")) as node:
            for number in range(times):
                leads = spawned.Event()
                name = f"a{number}"
                leader = spawned.Process(target=lead, args=(address, str(Path(folder, name)), name, leads))
                leader.start()
                leads.wait(60)
                time.sleep(_LEADS_SECONDS)
                leader.kill()
                leader.join()
                killed = time.monotonic()
                node.lead(0)
                node.put(b"key", b"next")
                taken.append(time.monotonic() - killed)
                print(f"{taken[-1]:.2f} s", flush=True)
    print(f"next acknowledged put after the leader was killed: median {statistics.median(taken):.2f} s")


if __name__ == "__main__":
    main()
