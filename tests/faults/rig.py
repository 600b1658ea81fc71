"""Real processes: drivers, and a standalone cluster of a master and two workers; all end with the test."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

import pyspark

from tests.faults.failpoints import Failpoints, until
from tests.faults.rows import CHUNK, PARTITIONS
from tests.jvms import INTERPRETED, OPTIONS

SPARK_HOME = Path(pyspark.__file__).parent
DRIVER = Path(__file__).parent / "driver.py"
ANSWER_WITHIN_SECONDS = 150.0
_END_WITHIN_SECONDS = 10.0

DRIVER_CONF = {
    **INTERPRETED,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.files.openCostInBytes": "0",  # small files are read by few tasks
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}

LOCAL_CONF = {**DRIVER_CONF, "spark.master": "local[2,4]"}
"""Two tasks at a time, and four attempts of each, as on a cluster."""


class Driver:
    """A driver process that runs one write at a time; it is started when it is needed, also after a kill."""

    def __init__(
        self,
        folder: Path,
        failpoints: Failpoints,
        conf: Mapping[str, str] = LOCAL_CONF,
        executors: int = 0,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._environment = _environment(failpoints, "127.0.0.1", folder)
        self._command = [sys.executable, str(DRIVER), "--executors", str(executors), "--conf"]
        self._conf = {**conf, "spark.local.dir": str(folder / "scratch")}
        self._process: subprocess.Popen[str] | None = None
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._orders = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start the process, unless it runs, and wait until its session is there."""
        if self._process is not None and self._process.poll() is None:
            return
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, json.dumps(self._conf)],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answers = SimpleQueue()
        Thread(target=_collect, args=(self._process, self._answers), daemon=True).start()
        self._next_answer()

    def write(
        self, source: str, log: Path | str, *, order_by: tuple[str, ...] = (), restless: bool = False, **options: str
    ) -> dict[str, Any]:
        """Run a write to its end and return what came of it."""
        self.begin(source, log, order_by=order_by, restless=restless, **options)
        return self.answer()

    def begin(
        self, source: str, log: Path | str, *, order_by: tuple[str, ...] = (), restless: bool = False, **options: str
    ) -> None:
        """Begin a write, the same for the same arguments, with small chunks."""
        defaults = {"partitions": str(PARTITIONS), "maxRecordsPerChunk": str(CHUNK), "fencedWaitMs": "20000"}
        order = {
            "state": (),
            "input": source,
            "log": str(log),
            "order_by": order_by,
            "restless": restless,
            "options": defaults | options,
        }
        self._send(order)

    def begin_state(self, log: Path | str, *arguments: str) -> None:
        """Begin to save the state of a log, by the program with these arguments."""
        self._send({"log": str(log), "state": arguments})

    def _send(self, order: dict[str, Any]) -> None:
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._orders += 1
        self._process.stdin.write(json.dumps({"number": self._orders, **order}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of the write that was begun last."""
        while (answer := self._next_answer())["number"] != self._orders:
            pass
        return answer

    def _next_answer(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=ANSWER_WITHIN_SECONDS)
        except Empty:
            self.kill()  # what it still does must not meet the next test
            raise TimeoutError(f"the driver gave no answer; its log ends:\n{self._log_end()}") from None
        if not line:
            raise RuntimeError(f"the driver ended; its log ends:\n{self._log_end()}")
        return json.loads(line)

    def kill(self) -> None:
        """Kill the driver as an operator would: its Python process and its JVM, by signal 9, at once."""
        assert self._process is not None
        assert self._process.stdin is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_END_WITHIN_SECONDS)
        self._process.stdin.close()

    def end(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_WITHIN_SECONDS)
        finally:
            _kill_group(self._process.pid)

    def _log_end(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-4000:]


class Cluster:
    """A standalone cluster: a master on 127.0.0.1, and workers of one core each on 127.0.0.2 and 127.0.0.3."""

    def __init__(self, folder: Path, failpoints: Failpoints) -> None:
        folder.mkdir()
        self.folder = folder
        self._failpoints = failpoints
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = _free_port()
        self.worker_folders = [folder / host for host in ("127.0.0.2", "127.0.0.3")]

    @property
    def conf(self) -> dict[str, str]:
        """What a driver of this cluster is started with. Speculation begins early."""
        return {
            **DRIVER_CONF,
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": OPTIONS,
            "spark.executor.memory": "512m",
            "spark.master": f"spark://127.0.0.1:{self.port}",
            "spark.speculation": "true",
            "spark.speculation.interval": "200ms",
            "spark.speculation.minTaskRuntime": "1s",
            "spark.speculation.multiplier": "2",
            "spark.speculation.quantile": "0.5",
        }

    def __enter__(self) -> Self:
        try:
            self._start("127.0.0.1", "master.Master", "--host", "127.0.0.1", "--port", str(self.port))
            until(self._master_listens, "the master")
            for folder in self.worker_folders:
                size = ("--cores", "1", "--memory", "512m", "--work-dir", str(folder))
                master = self.conf["spark.master"]
                self._start(folder.name, "worker.Worker", "--host", folder.name, "--port", "0", *size, master)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_END_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_WITHIN_SECONDS)

    def _start(self, host: str, name: str, *arguments: str) -> None:
        command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}", "--webui-port", "0"]
        with (self.folder / f"{name}-{host}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=self.folder,
                env=_environment(self._failpoints, host, self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def _master_listens(self) -> bool:
        if self._processes[0].poll() is not None:
            raise RuntimeError(f"the master ended with {self._processes[0].returncode}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def end_all(failpoints: Failpoints) -> list[int]:
    """Kill whatever still runs of the processes that were started with these failpoints, also if stopped."""
    marks = {f"{name}={value}".encode() for name, value in failpoints.environment.items()}
    left = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or somebody else's
            continue
        if marks.issubset(variables):
            left.append(int(folder.name))
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return left


def is_idle(pid: int) -> bool:
    """Whether a process has ended, or does nothing for a while."""
    before = _cpu_ticks(pid)
    time.sleep(1)
    return _cpu_ticks(pid) in (None, before)


def _cpu_ticks(pid: int) -> tuple[str, ...] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else tuple(fields[11:13])


def _environment(failpoints: Failpoints, host: str, folder: Path) -> dict[str, str]:
    """The variables of a process and of all that it starts: nothing from outside configures Spark."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **inherited,
        **failpoints.environment,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
    }


def _collect(process: subprocess.Popen[str], answers: SimpleQueue[str]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            answers.put(line)
    answers.put("")


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
