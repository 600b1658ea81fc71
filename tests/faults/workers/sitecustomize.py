"""Failpoints: Python runs this module at its start when the folder is on PYTHONPATH, so the package holds none.

Around each put into a directory, behind each step of a source, and before a state's offsets are saved, it notes what
happens in ``events.jsonl`` and does what ``armed.json`` says; both lie in the folder that the environment variable
SPARK_CAS_FAULTS names. See `tests.faults.failpoints`.
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
    """Notes where a process is, and does there what the test has armed."""

    def __init__(self, folder):
        self._folder = folder
        self._path = ""

    def wrap_puts(self, module):
        """Stand before a file is put, between staging and linking it, and after."""
        create, link = module.LocalFolder.create, os.link

        def create_at_failpoints(store, path, data):
            self._path = path
            self.reach("before")
            reply = create(store, path, data)
            self.reach("linked" if reply.name == "CREATED" else "refused")
            return reply

        def link_at_failpoint(*arguments, **options):
            self.reach("staged")
            link(*arguments, **options)

        module.LocalFolder.create, os.link = create_at_failpoints, link_at_failpoint

    def wrap_source(self, module):
        """Stand behind each answer that Spark is about to get of a stream's source, and between what a task reads."""
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
        """Stand between the rows of a state that is saved and its offsets."""
        write_offsets = module._Folder.write_offsets

        def write_at_failpoint(place, at, rows):
            self._path = rows
            self.reach("saving")
            write_offsets(place, at, rows)

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
        """Whether it fires: always, or only for the first process that comes here."""
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
        """The JVM that runs this task is the parent of the daemon that forked this worker."""
        after_name = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
        os.kill(int(after_name.split()[1]), signal.SIGKILL)

    def _wait(self, point):
        """Wait until the test releases the point."""
        _until((self._folder / f"released-{point['name']}").exists)

    def _overtaken(self, _):
        """Wait until another attempt has put a chunk of this name."""
        _until(lambda: any(event["at"] == "linked" for event in self._others()))

    def _meet(self, _):
        """Wait until another process is at this point. It never is if its run was rejected elsewhere before."""
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
    """Wraps a module when it is imported, and not before: that happens in the worker, after the fork."""

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
