"""One node: controller and broker in one process, which can be killed, frozen and started again."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from spark_cas.testing.kafka_broker.jars import java, kafka_jars
from spark_cas.testing.kafka_broker.listeners import (
    BROKER,
    CONTROLLER,
    PROXIED,
    Listener,
    listener_settings,
    properties,
)
from spark_cas.testing.kafka_broker.metadata import Known, known_to
from spark_cas.testing.kafka_broker.waiting import BrokerFailedError, end_of, wait_until
from spark_cas.testing.ports import HOST

START_SECONDS = 90
"""A start takes some seconds of processor time, and as many times longer as the machine is busier."""
STOP_SECONDS = 15
SIGNAL_SECONDS = 10
FORMAT_SECONDS = 60
ANSWER_SECONDS = 2

_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",  # it is a file elsewhere, which a killed process leaves behind
    "-Djava.awt.headless=true",
)
_COMPILE_QUICKLY = "-XX:TieredStopAtLevel=1"
"""Without the second compiler, which takes a third of the processor time of the first minutes."""


class KafkaNode:
    """A node in ``folder``, which holds its settings, data, output and, while it runs, its pid."""

    def __init__(
        self, node_id: int, folder: Path, conf: Path, listeners: Sequence[Listener], *, heap_mb: int, measured: bool
    ) -> None:
        self.id = node_id
        self._folder = folder
        self._conf = conf
        self._ports = {each.name: each for each in listeners}
        self._jvm_options = (f"-Xmx{heap_mb}m", *(() if measured else (_COMPILE_QUICKLY,)))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect to this node."""
        return f"{HOST}:{self._ports[BROKER].port}"

    @property
    def proxied_address(self) -> str:
        """Where a proxy connects to this node; those who come this way are told the advertised port."""
        if PROXIED not in self._ports:
            raise ValueError("the node has no proxied listener: give advertised_ports")
        return f"{HOST}:{self._ports[PROXIED].port}"

    def address_at(self, listener: str) -> str:
        """Where clients connect to this node through the listener of a name."""
        return f"{HOST}:{self._ports[listener].port}"

    @property
    def pid(self) -> int:
        """The process, which must be running."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """There is a process; it may be frozen."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """What the node printed since it was first started."""
        console = self._folder / "console.log"
        return console.read_text(errors="replace") if console.exists() else ""

    def write_settings(self, voters: str, settings: Mapping[str, str]) -> None:
        """Write the server properties: the template first, so that what follows wins."""
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
        """This node as the quorum's setting names it."""
        return f"{self.id}@{HOST}:{self._ports[CONTROLLER].port}"

    @contextmanager
    def formatting(self, cluster_id: str) -> Iterator[subprocess.Popen[str]]:
        """The process that formats the data folder. The caller waits for it, so that nodes are formatted at once."""
        command = self._java(_COMPILE_QUICKLY)
        command += ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
            try:
                yield tool
            finally:
                tool.kill()  # harmless when it has ended

    def begin_start(self) -> None:
        """Start the process, and do not wait for it."""
        if self.is_running:
            raise ValueError(f"node {self.id} is running already")
        command = [*self._java(*self._jvm_options), "kafka.Kafka", str(self._properties)]
        with (self._folder / "console.log").open("ab") as console:
            # A session of its own: Ctrl-C in the terminal reaches us, and we decide what becomes of the broker.
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
        """Wait until this node answers and knows these nodes, by default itself, to be alive."""
        wanted = nodes or frozenset([self.id])

        def answers() -> bool:
            if not self.is_running:
                raise BrokerFailedError(f"node {self.id} ended while it started:\n{end_of(self.output)}")
            return wanted <= self.known().alive

        wait_until(answers, seconds, lambda: f"node {self.id} was not up in {seconds} s:\n{end_of(self.output)}")

    def known(self) -> Known:
        """What this node knows of the cluster; nothing while it does not answer."""
        return known_to(self._ports[BROKER].port, ANSWER_SECONDS)

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more when this returns. Its data stays; harmless when it is not running."""
        if self._process is not None:
            self._process.kill()
            self._ended(SIGNAL_SECONDS)

    def stop(self) -> None:
        """Shut down in order, and by SIGKILL what takes longer than `STOP_SECONDS`. Its data stays."""
        if self._process is None:
            return
        self._process.terminate()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)  # a frozen process would not hear of it
        try:
            self._ended(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """Start again on the same ports and data, killing it first if it runs, and wait until it answers."""
        self.kill()
        self.begin_start()
        self.wait_until_alive()

    def freeze(self) -> None:
        """SIGSTOP: it holds its connections and does nothing, until `thaw`."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        look = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        wait_until(
            lambda: os.waitid(os.P_PID, process.pid, look) is not None,
            SIGNAL_SECONDS,
            lambda: f"node {self.id} did not stop",
        )

    def thaw(self) -> None:
        """SIGCONT: it goes on where it was, its clocks having run on."""
        self._running().send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Wait, without a deadline, until the process ends by itself."""
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
        return [
            *(java(), *_JVM_OPTIONS, *options),
            f"-Djava.io.tmpdir={self._folder / 'tmp'}",  # native libraries are unpacked there
            f"-Dlog4j2.configurationFile={self._conf / 'log4j2.properties'}",
            *("-cp", f"{kafka_jars()}/*"),
        ]
