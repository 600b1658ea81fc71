"""The client processes of a run."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.chaos.place import Place
from tests.chaos.processes import ClientProcess
from tests.chaos.run import NOT_CALM, end
from tests.chaos.world import World
from tests.support.memory_log import MemoryLog
from tools.kafka_broker.waiting import wait_until

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


def test_client_ends_if_its_rig_ended_before_the_first_check(tmp_path):
    world = World(tmp_path, str(tmp_path / "log"))
    world.write()
    with world.open() as log:
        log.create(2)
    rig = subprocess.run([sys.executable, "-c", RIG, tmp_path], capture_output=True, text=True, check=True)
    pid = int(rig.stdout)
    try:
        wait_until(lambda: not is_running(pid), _SECONDS, lambda: "the client did not exit")
    finally:
        world.stop.touch()
    assert (tmp_path / "r1.out").read_text() == ""


ONCE_BROKEN = """
import sys, time
from pathlib import Path

folder = Path(sys.argv[1])
if not (folder / "been").exists():
    (folder / "been").touch()
    sys.exit("a defect")
while not (folder / "stop").exists():
    time.sleep(0.05)
"""


def once_broken(folder):
    (folder / "once_broken.py").write_text(ONCE_BROKEN)
    return ClientProcess("n1", folder, "once_broken", [str(folder)], os.environ | {"PYTHONPATH": str(folder)})


def test_process_that_exited_after_the_last_fault_is_reported(tmp_path):
    node = once_broken(tmp_path)
    node.start()
    assert node.wait(_SECONDS)
    [found] = end(Place([node], {}, MemoryLog), tmp_path / "stop")
    assert found.number == NOT_CALM
    assert "n1 ended with 1:\na defect" in found.told
    assert found.told.count("a defect") == 1


def test_a_process_that_was_killed_complains_of_nothing(tmp_path):
    (tmp_path / "been").touch()
    node = once_broken(tmp_path)
    node.start()
    node.kill()
    assert end(Place([node], {}, MemoryLog), tmp_path / "stop") == []
