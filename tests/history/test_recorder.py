"""A kill at any moment leaves a history that can be read."""

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.history.operations import FAIL, INFO, OK, Operation, read_history
from tests.history.recorder import Recorder

WRITER = """
import sys
from pathlib import Path
from tests.history.operations import OK
from tests.history.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), "w")
print("begun", flush=True)
while True:
    number = recorder.start("append", {"rows": "x" * 10_000})
    recorder.finish(number, OK, {"rows": "y" * 10_000})
"""


def test_recorded_operations_are_read(tmp_path):
    with Recorder(tmp_path / "a.jsonl", "a") as recorder:
        first = recorder.start("append", {"x": 1})
        second = recorder.start("read", {})
        recorder.finish(first, FAIL, {"kind": "CONFLICT"})
        recorder.start("append", {"x": 2})
        recorder.finish(second, OK, {"end": 7})
    found = read_history(tmp_path)
    assert [(each.name, each.outcome, each.result) for each in found] == [
        ("append", FAIL, {"kind": "CONFLICT"}),
        ("read", OK, {"end": 7}),
        ("append", INFO, {}),
    ]
    assert found[2] == Operation("a", "append", {"x": 2}, found[2].start_ns)
    assert found[0].start_ns < found[1].start_ns < (found[0].end_ns or 0) < found[2].start_ns


def test_threads_share_a_file_and_processes_a_folder(tmp_path):
    def run(recorder: Recorder) -> None:
        for at in range(200):
            recorder.finish(recorder.start("append", {"at": at}), OK, {"at": at})

    recorders = [Recorder(tmp_path / f"{name}.jsonl", name) for name in "ab"]
    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(run, recorder) for recorder in recorders * 3]:
            done.result(30)
    for recorder in recorders:
        recorder.__exit__(None, None, None)
    found = read_history(tmp_path)
    assert len(found) == 1200
    assert all(each.outcome == OK and each.arguments == each.result for each in found)


def test_killed_writer_leaves_whole_lines_and_the_next_continues(tmp_path):
    file = tmp_path / "w.jsonl"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, file], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"begun\n"
            size = file.stat().st_size
            while file.stat().st_size < size + 300_000:
                assert writer.poll() is None
            writer.send_signal(signal.SIGKILL)
    lines = file.read_bytes().splitlines()
    found = read_history(tmp_path)
    assert len(found) > 30
    assert len({json.loads(line)["id"] for line in lines if line.endswith(b"}")}) >= len(found)
    assert sum(each.outcome == INFO for each in found) <= 3


def test_a_torn_line_is_passed_over_and_not_joined_to(tmp_path):
    file = tmp_path / "w.jsonl"
    with Recorder(file, "w") as recorder:
        recorder.start("append", {})
    file.write_bytes(file.read_bytes() + b'{"process": "w", "id": 1, "ev')
    with Recorder(file, "w") as recorder:
        recorder.finish(recorder.start("read", {}), OK, {})
    assert [(each.name, each.outcome) for each in read_history(tmp_path)] == [("append", INFO), ("read", OK)]


def test_a_finish_without_a_start_is_no_history(tmp_path):
    with Recorder(tmp_path / "w.jsonl", "w") as recorder:
        recorder.finish(7, OK, {})
    with pytest.raises(ValueError, match="fits no start"):
        read_history(tmp_path)
