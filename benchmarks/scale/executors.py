"""The duration of a load by executors, in a standalone cluster on this machine, of workers with one core each."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from benchmarks.rows import in_partitions, make_rows
from benchmarks.scale.series import Series, Turn, measured, tell
from benchmarks.writing import append
from tools.kafka_broker.connector import connector_jars
from tools.ports import held_ports

_HOST = "127.0.0.1"
_UP_WITHIN_SECONDS = 60
_ENDS_WITHIN_SECONDS = 20
_POLL_SECONDS = 0.1
_MEMORY = "2g"


def grow_executors(scratch: Path, folder: Path, rows: int, sizes: Mapping[int, int]) -> list[Series]:
    """Measure the same load into a directory with each number of executors in turn, each in its own cluster."""
    turns: dict[int, list[Turn]] = {size: [] for size in sizes}
    for turn in range(max(sizes.values())):
        for executors in sizes:
            if turn < sizes[executors]:
                turns[executors].append(took := _load(scratch, folder, rows, executors))
                tell(f"{rows:,} rows, {executors} executors", took)
    return [Series(f"a load of {rows:,} rows", "executors", {size: tuple(each) for size, each in turns.items()})]


def _load(scratch: Path, folder: Path, rows: int, executors: int) -> Turn:
    path = scratch / "on-cluster"
    with _cluster(scratch / "cluster", executors) as master:
        spark = _session(master)
        try:
            made = make_rows(spark, folder / f"rows-{rows}", rows)
            # The first load warms up JVMs, Python workers and the file cache.
            for _ in range(2):
                shutil.rmtree(path, ignore_errors=True)
                took = measured(partial(append, in_partitions(made), path))
            return took
        finally:
            spark.stop()
            shutil.rmtree(path, ignore_errors=True)


def _session(master: str) -> SparkSession:
    spark = (
        SparkSession.builder.appName("benchmarks")
        .master(master)
        .config("spark.driver.host", _HOST)
        .config("spark.driver.bindAddress", _HOST)
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", _MEMORY)
        .config("spark.ui.enabled", "false")
        # Later sessions share this JVM.
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def _cluster(folder: Path, workers: int) -> Iterator[str]:
    """Run a master with so many workers within the context, and yield its address."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with held_ports(1) as [port]:
        master = f"spark://{_HOST}:{port}"
        processes: list[subprocess.Popen[bytes]] = []
        try:
            processes.append(_start(folder, "master.Master", "--host", _HOST, "--port", str(port)))
            _wait_until_it_listens(processes[0], port)
            size = ("--cores", "1", "--memory", _MEMORY, "--work-dir", str(folder))
            processes += [_start(folder, "worker.Worker", "--host", _HOST, *size, master) for _ in range(workers)]
            yield master
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                try:
                    process.wait(_ENDS_WITHIN_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--webui-port", "0", *arguments],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": _HOST},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _UP_WITHIN_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(_POLL_SECONDS)
    raise TimeoutError(f"the master of the cluster did not listen within {_UP_WITHIN_SECONDS} s")
