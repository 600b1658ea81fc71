"""SIGINT ends the programs that tests start, even if a shell started the tests in the background."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
IGNORING_SIGINT = "trap '' INT; exec \"$@\""


def test_sigint_ends_a_child():
    with subprocess.Popen(["sleep", "60"]) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait() == -signal.SIGINT


def test_sigint_ends_a_child_of_background_tests():
    test = f"{__file__}::{test_sigint_ends_a_child.__name__}"
    command = ["sh", "-c", IGNORING_SIGINT, "sh", sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout
