"""A standalone Spark cluster of real processes, and the settings of its drivers."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark

from tests.jvms import INTERPRETED, OPTIONS
from tools.kafka_broker.waiting import wait_until
from tools.ports import held_ports

SPARK_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 150.0
_END_WITHIN_SECONDS = 10.0

DRIVER_CONF = {
    **INTERPRETED,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.files.openCostInBytes": "0",  # few tasks read small files
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}


class Cluster:
    """A master on 127.0.0.1, and workers with some cores each on 127.0.0.2 and 127.0.0.3.

    All processes inherit ``environment``. An executor has one core and 512 MB.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, cores: int = 1) -> None:
        folder.mkdir()
        self.folder = folder
        self._environment = environment
        self._cores = cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self._held = ExitStack()
        [self.port] = self._held.enter_context(held_ports(1))
        self.worker_folders = [folder / host for host in ("127.0.0.2", "127.0.0.3")]

    @property
    def conf(self) -> dict[str, str]:
        """The settings of a driver of this cluster. Speculation begins early."""
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

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the two workers, which start the executors."""
        return [each.pid for each in self._processes[1:]]

    def __enter__(self) -> Self:
        try:
            self._start("127.0.0.1", "master.Master", "--host", "127.0.0.1", "--port", str(self.port))
            wait_until(self._master_listens, _START_SECONDS, lambda: "the master does not listen")
            for folder in self.worker_folders:
                size = ("--cores", str(self._cores), "--memory", f"{512 * self._cores}m", "--work-dir", str(folder))
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
        self._held.close()

    def _start(self, host: str, name: str, *arguments: str) -> None:
        command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}", "--webui-port", "0"]
        with (self.folder / f"{name}-{host}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=self.folder,
                env=spark_environment(self._environment, host, self.folder),
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


def spark_environment(environment: Mapping[str, str], host: str, folder: Path) -> dict[str, str]:
    """Return the variables of a process and of its children. No variable from outside configures Spark."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **inherited,
        **environment,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
    }
