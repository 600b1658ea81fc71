"""The detection of processes that are running, or have ended."""

import os
import signal
import subprocess
import sys

from spark_cas.log.load.locking import is_process_running, process_name


def test_one_that_runs_has_not_ended_and_one_that_was_killed_has():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = process_name(other.pid)
        assert name
        assert is_process_running(name)
        other.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert is_process_running(name) is False, "a zombie has ended, although its exit code was not read"
    assert is_process_running(name) is False


def test_process_with_a_reused_id_is_another():
    mine = process_name(os.getpid())
    assert is_process_running(mine)
    assert is_process_running(mine.rpartition("/")[0] + "/1") is False


def test_nothing_is_known_of_other_machines_or_without_a_name():
    place, _, rest = process_name(os.getpid()).partition("|")
    assert is_process_running("") is None
    assert is_process_running(f"another-boot/{place.partition('/')[2]}|999999999/1") is None
    assert is_process_running("|999999999/1") is None
    assert is_process_running(f"{place}|999999999/1") is False
    assert rest
    assert process_name(999_999_999) == ""
