"""The bulk load of a complete job, in its own process, compared with the load itself."""

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

from benchmarks.measure import Result, seconds_of
from benchmarks.sizes import PARTITIONS

PROGRAM = Path(__file__).parents[1] / "jobs" / "bulk_load.py"
PYTHON = (sys.executable,)
SPARK_SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[*]")
"""It always starts a JVM before the program runs."""


def compare_completed(name: str, launcher: Sequence[str], rows: Path, scratch: Path, repeats: int) -> Result:
    """Run the same command twice on a new log: the first loads, the second detects that the job is complete."""
    loads, reruns = [], []
    log = scratch / "completed"
    for turn in range(1, repeats + 1):
        shutil.rmtree(log, ignore_errors=True)
        loads.append(seconds_of(lambda: _run(launcher, rows, log)))
        reruns.append(seconds_of(lambda: _run(launcher, rows, log)))
        print(f"{name}, {turn} of {repeats}: load {loads[-1]:.2f} s, again {reruns[-1]:.2f} s", flush=True)
    shutil.rmtree(log, ignore_errors=True)
    return Result(name, statistics.median(reruns), statistics.median(loads), "s", "at least 10")


def _run(launcher: Sequence[str], rows: Path, log: Path) -> None:
    what = ["--input", str(rows), "--format", "parquet", "--key", "key", "--value", "value"]
    where = ["--log", str(log), "--job", "benchmark", "--partitions", str(PARTITIONS)]
    done = subprocess.run(
        [*launcher, str(PROGRAM), *what, *where],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{PROGRAM.name} ended with exit code {done.returncode}:\n{done.stderr}")
