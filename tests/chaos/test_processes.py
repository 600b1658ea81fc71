"""The processes of a run."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from spark_cas.testing.kafka_broker.waiting import wait_until
from tests.chaos.world import World

_SECONDS = 30

RIG = """
import os, sys
from pathlib import Path
from tests.chaos.processes import ClientProcess

folder = sys.argv[1]
client = ClientProcess("r1", Path(folder), "tests.chaos.reader", [folder, "r1", "1"])
client.start()
print(client.pid, flush=True)
os._exit(0)
"""


def is_running(pid):
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def test_a_client_ends_whose_rig_had_ended_before_it_looked(tmp_path):
    world = World(tmp_path, str(tmp_path / "log"))
    world.write()
    with world.open() as log:
        log.create(2)
    rig = subprocess.run([sys.executable, "-c", RIG, tmp_path], capture_output=True, text=True, check=True)
    pid = int(rig.stdout)
    try:
        wait_until(lambda: not is_running(pid), _SECONDS, lambda: "the client lives on")
    finally:
        world.stop.touch()
    assert (tmp_path / "r1.out").read_text() == ""
