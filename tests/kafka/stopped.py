"""Writers in processes of their own that lie stopped at a step, and what they leave undecided."""

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
    """How many offsets lie in transactions that are open."""
    decided = _end_of(address, topic, IsolationLevel.READ_COMMITTED)
    return _end_of(address, topic, IsolationLevel.READ_UNCOMMITTED) - decided


@contextmanager
def stopped_at(step, broker, topic, timeout_ms=2_000, expected="end"):
    """A process that lies stopped at a step as long as the context lasts. Yields what it says after that."""
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
        # Where it comes to the step again, it is not stopped again.
        told += [line for line in writer.communicate("go on\n" * 9, timeout=SECONDS)[0].split() if line != "here"]
    assert writer.returncode == 0
