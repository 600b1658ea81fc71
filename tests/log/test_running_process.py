"""The detection of processes that are running, or have ended."""

import os
import signal
import subprocess
import sys

from spark_cas.log import running_process


def test_one_that_runs_has_not_ended_and_one_that_was_killed_has():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = running_process.name_of(other.pid)
        assert name
        assert running_process.is_running(name)
        other.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert running_process.is_running(name) is False, "a zombie has ended, although its exit code was not read"
    assert running_process.is_running(name) is False


def test_process_with_a_reused_id_is_another():
    mine = running_process.name_of(os.getpid())
    assert running_process.is_running(mine)
    assert running_process.is_running(mine.rpartition("/")[0] + "/1") is False


def test_nothing_is_known_of_other_machines_or_without_a_name():
    place, _, rest = running_process.name_of(os.getpid()).partition("|")
    assert running_process.is_running("") is None
    assert running_process.is_running(f"another-boot/{place.partition('/')[2]}|999999999/1") is None
    assert running_process.is_running("|999999999/1") is None
    assert running_process.is_running(f"{place}|999999999/1") is False
    assert rest
    assert running_process.name_of(999_999_999) == ""
