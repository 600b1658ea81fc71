"""Writer processes that a test stops at a step, and the open transactions that they leave."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.kafka.clients import SECONDS, admin_of

WRITER = Path(__file__).parent / "stopped_writer.py"


def _end_of(address, topic, isolation):
    at = TopicPartition(topic, 0)
    admin = admin_of(address)
    found = admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=isolation)
    return found[at].result(SECONDS).offset


def undecided(address, topic):
    """Return the number of offsets between the last stable offset and the end of partition 0."""
    decided = _end_of(address, topic, IsolationLevel.READ_COMMITTED)
    return _end_of(address, topic, IsolationLevel.READ_UNCOMMITTED) - decided


@contextmanager
def stopped_at(step, broker, topic, timeout_ms=2_000, expected="end"):
    """Run a writer process, stopped at a step while the context lasts. Yields the list for its output after that."""
    command = [sys.executable, str(WRITER), broker.bootstrap, topic, str(timeout_ms), step, expected]
    root = Path(__file__).parents[2]
    environment, pipe = {**os.environ, "PYTHONPATH": str(root)}, subprocess.PIPE
    told: list[str] = []
    with subprocess.Popen(command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "here\n"
        writer.send_signal(signal.SIGSTOP)
        try:
            yield told
        finally:
            writer.send_signal(signal.SIGCONT)
        # If the process reaches the step again, it continues at once.
        told += [line for line in writer.communicate("go on\n" * 9, timeout=SECONDS)[0].split() if line != "here"]
    assert writer.returncode == 0
