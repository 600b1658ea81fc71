"""Failpoints outside the package: Python runs this module at startup if its folder is on PYTHONPATH.

They are around each put into a directory, after each step of a source, and before the offsets of a saved state. At
each one the process appends an event to ``events.jsonl`` and performs the action in ``armed.json``. The environment
variable SPARK_CAS_FAULTS names the folder of both files. See `tests.faults.failpoints`.
"""

import importlib.abc
import importlib.machinery
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

_FOLDER = os.environ.get("SPARK_CAS_FAULTS")
_PAUSE_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 120.0
_LONGEST_MEETING_SECONDS = 60.0


class _Failpoints:
    """Records the failpoints that a process reaches, and performs the actions that the test has armed."""

    def __init__(self, folder):
        self._folder = folder
        self._path = ""

    def wrap_puts(self, module):
        """Add failpoints before a put, between its staging and linking, and after it."""
        create, link = module.LocalStore.create, os.link

        def create_at_failpoints(store, path, data):
            self._path = path
            self.reach("before")
            reply = create(store, path, data)
            self.reach("linked" if reply.name == "CREATED" else "refused")
            return reply

        def link_at_failpoint(*arguments, **options):
            self.reach("staged")
            link(*arguments, **options)

        module.LocalStore.create, os.link = create_at_failpoints, link_at_failpoint

    def wrap_source(self, module):
        """Add failpoints after each result of a stream's source, and after each batch of records in a task."""
        reader = module.RecordsStreamReader

        def at_failpoint(name, step):
            def stepped(source, *arguments):
                answer = step(source, *arguments)
                self._path = name
                self.reach("source")
                return answer

            return stepped

        for name in ("initialOffset", "latestOffset", "partitions", "commit"):
            setattr(reader, name, at_failpoint(name, getattr(reader, name)))
        read = reader.read

        def read_at_failpoints(source, partition):
            for records in read(source, partition):
                yield records
                self._path = "read"
                self.reach("source")

        reader.read = read_at_failpoints

    def wrap_saving(self, module):
        """Add a failpoint after the rows of a saved state, and before its offsets."""
        write_offsets = module._Folder.write_offsets

        def write_at_failpoint(place, at, rows, count):
            self._path = rows
            self.reach("saving")
            write_offsets(place, at, rows, count)

        module._Folder.write_offsets = write_at_failpoint

    def reach(self, at):
        self._note(at, "reached")
        armed = self._folder / "armed.json"
        if not armed.exists():
            return
        for point in json.loads(armed.read_text()):
            if point["at"] == at and re.search(point["path"], self._path) and self._may_fire(point):
                self._note(at, point["action"])
                getattr(self, "_" + point["action"])(point)

    def _may_fire(self, point):
        """Return whether the point fires: always, or only in the first process that reaches it."""
        if not point["once"]:
            return True
        try:
            (self._folder / f"fired-{point['name']}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _note(self, at, what):
        event = {"at": at, "path": self._path, "what": what, "pid": os.getpid()}
        handle = os.open(self._folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, json.dumps(event).encode() + b"\n")
        os.close(handle)

    def _kill(self, _):
        os.kill(os.getpid(), signal.SIGKILL)

    def _stop(self, _):
        os.kill(os.getpid(), signal.SIGSTOP)

    def _kill_executor(self, _):
        """Kill the JVM that runs this task: the parent of the daemon that forked this worker."""
        after_name = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
        os.kill(int(after_name.split()[1]), signal.SIGKILL)

    def _wait(self, point):
        """Wait until the test releases the point."""
        _until((self._folder / f"released-{point['name']}").exists)

    def _overtaken(self, _):
        """Wait until another process has put the same chunk."""
        _until(lambda: any(event["at"] == "linked" for event in self._others()))

    def _meet(self, _):
        """Wait until another process is at this point. It does not get there if its run was rejected before."""
        _until(lambda: any(event["what"] == "meet" for event in self._others()), _LONGEST_MEETING_SECONDS)

    def _others(self):
        lines = (self._folder / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [event for event in events if event["path"] == self._path and event["pid"] != os.getpid()]


def _until(done, seconds=_LONGEST_WAIT_SECONDS):
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)


_WRAPPED = {
    "spark_cas.log.objects.local": _Failpoints.wrap_puts,
    "spark_cas.programs.saved_state": _Failpoints.wrap_saving,
    "spark_cas.spark.reading.stream_read": _Failpoints.wrap_source,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps a module when it is imported and not earlier: that happens in the worker, after the fork."""

    def __init__(self, folder):
        self._failpoints = _Failpoints(folder)

    def find_spec(self, fullname, path, target=None):
        if fullname not in _WRAPPED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Loader(fullname, spec.origin, self._failpoints)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname, origin, failpoints):
        super().__init__(fullname, origin)
        self._failpoints = failpoints

    def exec_module(self, module):
        super().exec_module(module)
        _WRAPPED[module.__name__](self._failpoints, module)


if _FOLDER:
    sys.meta_path.insert(0, _Finder(Path(_FOLDER)))
