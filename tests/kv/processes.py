"""Nodes in processes of their own: send commands to them, freeze them and kill them."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread

from tests.kv.nodes import SECONDS

PROGRAM = Path(__file__).with_name("node_process.py")


class NodeProcess:
    """A node process. Each wait for a line ends after `SECONDS`."""

    def __init__(self, log, folder, address):
        root = PROGRAM.parents[2]
        command = [sys.executable, str(PROGRAM), log, str(Path(folder, address)), address]
        environment, pipe = os.environ | {"PYTHONPATH": f"{root}:{root / 'examples'}"}, subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdin
        assert self._process.stdout
        self._reported, self._totals = self._process.stdin, self._process.stdout
        self._lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()

    def ready(self):
        assert self.line() == "ready"
        return self

    def say(self, *words):
        self._reported.write(" ".join(words) + "\n")
        self._reported.flush()

    def line(self):
        """Return the next line of output; empty after the process has died."""
        return self._lines.get(timeout=SECONDS)

    def ask(self, *words):
        """Send a command, and return all lines of its output."""
        self.say(*words)
        return self.release()

    def release(self):
        """Return the lines up to the end of the command's output, or of the process."""
        return list(iter(lambda: self.line() or "done", "done"))

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """Kill the process, as with ``kill -9``."""
        self._process.kill()
        self._process.wait()

    def close(self):
        self.signal(signal.SIGCONT)
        self.kill()
        self._reported.close()

    def _read(self):
        with self._totals as said:
            for line in said:
                self._lines.put(line.strip())
        self._lines.put("")


@contextmanager
def processes(log, folder, *addresses):
    """Yield a node for each address when all are ready; kill them at the end."""
    nodes = [NodeProcess(log, folder, each) for each in addresses]
    try:
        yield [each.ready() for each in nodes]
    finally:
        for each in nodes:
            each.close()
