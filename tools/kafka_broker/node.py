"""A Kafka node: controller and broker in one process that tests can kill, freeze and restart."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.kafka_broker.jars import java, kafka_archive, kafka_jars
from tools.kafka_broker.listeners import (
    BROKER,
    CONTROLLER,
    PROXIED,
    Listener,
    listener_settings,
    properties,
)
from tools.kafka_broker.metadata import Known, known_to
from tools.kafka_broker.waiting import BrokerFailedError, end_of, wait_until
from tools.ports import HOST

START_SECONDS = 90
"""Timeout of a start. A start takes some seconds of CPU time, and longer on a busy machine."""
STOP_SECONDS = 15
SIGNAL_SECONDS = 10
FORMAT_SECONDS = 60
ANSWER_SECONDS = 2

_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",  # a killed process does not remove this file
    "-Djava.awt.headless=true",
)
_COMPILE_QUICKLY = "-XX:TieredStopAtLevel=1"
"""Disable the second compiler, which uses a third of the CPU time of the first minutes."""


class KafkaNode:
    """A node in ``folder``, which holds its settings, data and output, and its pid while it runs."""

    def __init__(
        self,
        node_id: int,
        folder: Path,
        conf: Path,
        listeners: Sequence[Listener],
        *,
        classes: Path | None,
        heap_mb: int,
        measured: bool,
    ) -> None:
        self.id = node_id
        self._folder = folder
        self._conf = conf
        self._classes = classes
        self._ports = {each.name: each for each in listeners}
        self._jvm_options = (f"-Xmx{heap_mb}m", *(() if measured else (_COMPILE_QUICKLY,)))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"{HOST}:{self._ports[BROKER].port}"

    @property
    def proxied_address(self) -> str:
        """Address for a proxy. The node advertises the proxy's port to clients that connect here."""
        if PROXIED not in self._ports:
            raise ValueError("the node has no proxied listener: give advertised_ports")
        return f"{HOST}:{self._ports[PROXIED].port}"

    def address_at(self, listener: str) -> str:
        """Return the address of a listener by its name."""
        return f"{HOST}:{self._ports[listener].port}"

    @property
    def pid(self) -> int:
        """Process id of the running node. Raises ValueError if it is not running."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists. It may be frozen."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """Console output of the node since its first start."""
        console = self._folder / "console.log"
        return console.read_text(errors="replace") if console.exists() else ""

    def write_settings(self, voters: str, settings: Mapping[str, str]) -> None:
        """Write the server properties. The template is first, so that later settings override it."""
        wiring = {
            "process.roles": "broker,controller",
            "node.id": str(self.id),
            "controller.quorum.voters": voters,
            "log.dirs": str(self._folder / "data"),
            **listener_settings(list(self._ports.values())),
        }
        (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
        template = (self._conf / "server.properties").read_text()
        self._properties.write_text(f"{template}\n{properties(wiring)}{properties(settings)}")

    @property
    def voter(self) -> str:
        """The node in the format of the setting controller.quorum.voters."""
        return f"{self.id}@{HOST}:{self._ports[CONTROLLER].port}"

    @contextmanager
    def formatting(self, cluster_id: str) -> Iterator[subprocess.Popen[str]]:
        """Start the formatting of the data folder.

        The caller waits for the process, so nodes are formatted in parallel.
        """
        command = self._java(_COMPILE_QUICKLY)
        command += ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
            try:
                yield tool
            finally:
                tool.kill()  # no effect if the process has ended

    def begin_start(self) -> None:
        """Start the process without waiting for it."""
        if self.is_running:
            raise ValueError(f"node {self.id} is running already")
        command = [*self._java(*self._jvm_options), "kafka.Kafka", str(self._properties)]
        with (self._folder / "console.log").open("ab") as console:
            # Use a new session, so that Ctrl-C in the terminal does not stop the broker directly.
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self._folder / "pid").write_text(str(self._process.pid))

    def wait_until_alive(self, nodes: frozenset[int] | None = None, seconds: float = START_SECONDS) -> None:
        """Wait until this node replies and reports these nodes as alive.

        Args:
            nodes: the ids of the nodes; by default only this node
            seconds: the timeout

        Raises:
            BrokerFailedError: if the node exits or the timeout passes
        """
        wanted = nodes or frozenset([self.id])

        def answers() -> bool:
            if not self.is_running:
                raise BrokerFailedError(f"node {self.id} ended while it started:\n{end_of(self.output)}")
            return wanted <= self.known().alive

        wait_until(answers, seconds, lambda: f"node {self.id} was not up in {seconds} s:\n{end_of(self.output)}")

    def known(self) -> Known:
        """Return the node's view of the cluster; empty if it does not reply."""
        return known_to(self._ports[BROKER].port, ANSWER_SECONDS)

    def kill(self) -> None:
        """Kill the process (SIGKILL) and wait for its end. Keep the data. No effect if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._ended(SIGNAL_SECONDS)

    def stop(self) -> None:
        """Shut down in order, and kill the process if that takes longer than `STOP_SECONDS`. Keep the data."""
        if self._process is None:
            return
        self._process.terminate()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)  # a frozen process does not handle SIGTERM
        try:
            self._ended(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """Kill the process if it runs, start it with the same ports and data, and wait until it replies."""
        self.kill()
        self.begin_start()
        self.wait_until_alive()

    def freeze(self) -> None:
        """Stop the process (SIGSTOP). It keeps its connections but does nothing until `thaw`."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        status = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        wait_until(
            lambda: os.waitid(os.P_PID, process.pid, status) is not None,
            SIGNAL_SECONDS,
            lambda: f"node {self.id} did not stop",
        )

    def thaw(self) -> None:
        """Resume the process (SIGCONT). Its clocks have advanced meanwhile."""
        self._running().send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Wait without a timeout until the process exits."""
        return self._running().wait()

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ValueError(f"node {self.id} is not running")
        return self._process

    def _ended(self, seconds: float) -> None:
        if self._process is not None:
            self._process.wait(seconds)
            self._process = None
            (self._folder / "pid").unlink()

    def _java(self, *options: str) -> list[str]:
        archive = kafka_archive()
        if archive.exists():
            options += (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")  # no warning if the JVM ignores it
        return [
            *(java(), *_JVM_OPTIONS, *options),
            f"-Djava.io.tmpdir={self._folder / 'tmp'}",  # JVM native libraries are unpacked here
            f"-Dlog4j2.configurationFile={self._conf / 'log4j2.properties'}",
            *("-cp", os.pathsep.join([f"{kafka_jars()}/*", *([str(self._classes)] if self._classes else [])])),
        ]
