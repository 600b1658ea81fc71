"""The commands of docs/spark-submit.md, on a standalone cluster with two workers."""

import datetime as dt
import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_cas import open_log
from tests.long import full
from tests.pages import blocks
from tests.spark_cluster import Cluster, spark_environment
from tests.support.writing import append_foreign, records_in

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
BUILD_ZIP, SEND_ZIP, BUILD_ENVIRONMENT, SEND_ENVIRONMENT, RUN_PROGRAMS = (
    each.text for each in blocks("docs/spark-submit.md") if each.language == "bash" and not each.why_not_run
)
PYTHONPATH_LINE = next(line for line in SEND_ZIP.splitlines(keepends=True) if line.startswith("export PYTHONPATH="))
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "pyspark_conditional_log.py", "spark_cas")
JOBS = sorted(each for each in (ROOT / "jobs").glob("*.py") if not each.name.startswith("demo"))
COMMANDS = {text.split()[0]: f"submit jobs/{text}" for text in RUN_PROGRAMS.split("submit jobs/")[1:]}
"""The commands of the page by program, in order."""

LAST_LINES = {
    "bulk_load.py": '"status": "complete", "rows": 100, "null_keys": 0}',
    "verify_log.py": '{"status": "same", "expected_rows": 100, "actual_rows": 100, ',
    "bootstrap_state.py": '{"status": "complete", "rows": 7, ',
    "stream_copy.py": '{"status": "copied", "job": "flights-copy", "rows": 100, ',
    "expand_partitions.py": "flights now has 8 partitions, layout epoch 1",
}
"""A part of the last line that each program prints."""

ALL = tuple(LAST_LINES)
FEW = ("bulk_load.py", "stream_copy.py")

FLIGHTS = [(f"N{number % 7}", dt.datetime(2013, 1, 1, number % 24, tzinfo=dt.UTC), number) for number in range(100)]
READ_LOG = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
if "register" in sys.argv:
    from spark_cas import ConditionalLogSource
    spark.dataSource.register(ConditionalLogSource)
print("rows:", len(spark.read.format("conditional-log").load(sys.argv[1]).collect()))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("standalone") / "cluster", {"PYTHONPATH": ""}) as started:
        yield started
    for folder in started.worker_folders:  # the unpacked environments are large
        shutil.rmtree(folder, ignore_errors=True)


class Shell:
    """Runs commands of the page in the folder of a user that has only the programs."""

    def __init__(self, folder, cluster, python):
        self.folder = folder / "submitted"
        self.data = folder / "data"
        self.data.mkdir()
        (self.folder / "jobs").mkdir(parents=True)
        for program in JOBS:
            shutil.copy(program, self.folder / "jobs")
        conf = folder / "conf"
        conf.mkdir()
        lines = [f"{name} {value}\n" for name, value in {**cluster.conf, "spark.speculation": "false"}.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines))
        self._environment = spark_environment({}, "127.0.0.1", conf)
        # Otherwise the driver would find the editable install, or the source tree.
        for name in ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            self._environment.pop(name, None)
        self._environment["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        self._replaced = {
            "spark://master:7077": cluster.conf["spark.master"],
            "/opt/python/bin/python3": str(python),
            "/data/": f"{self.data}/",
        }

    def __call__(self, text, folder=None):
        """Run commands with the addresses of the test, until one fails."""
        for name, value in self._replaced.items():
            text = text.replace(name, value)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder or self.folder,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )


@pytest.fixture
def shell(tmp_path, cluster, dependencies_python):
    return Shell(tmp_path, cluster, dependencies_python)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the files that a build of the package needs."""
    folder = tmp_path_factory.mktemp("clone")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    return folder


def send(built, clone, shell, name):
    """Build an archive in the clone, and copy it into the user's folder."""
    if not (clone / name).exists():
        done = shell(built, clone)
        assert done.returncode == 0, done.stderr
    shutil.copy(clone / name, shell.folder)


def write_flights(shell):
    columns = zip(*FLIGHTS, strict=True)
    pq.write_table(pa.table(list(columns), ["tailnum", "time_hour", "number"]), shell.data / "flights.parquet")


def run_programs(programs, shell, cluster, sending, unpacked):
    """Run programs and check the results. Each worker must have ``unpacked`` in the folders of its executors."""
    write_flights(shell)
    earlier = {folder: set(folder.glob("app-*")) for folder in cluster.worker_folders}

    done = shell(sending + "".join(COMMANDS[program] for program in programs))

    assert done.returncode == 0, done.stdout + done.stderr
    for program in programs:
        assert LAST_LINES[program] in done.stdout, program
    numbers = numbers_in(shell.data / "logs/flights", 8 if "expand_partitions.py" in programs else 4)
    assert "stream_copy.py" not in programs or numbers == numbers_in(shell.data / "logs/flights-copy", 4)
    for folder in cluster.worker_folders:
        applications = set(folder.glob("app-*")) - earlier[folder]
        assert [each for each in applications if list(each.glob(f"*/{unpacked}"))], f"no {unpacked} in {folder}"


def numbers_in(log, partitions):
    """Return the numbers of the rows of each key in the order of the log."""
    with open_log(str(log)) as opened:
        assert opened.layout().partitions == partitions
        rows = [row for partition in range(partitions) for _, row in records_in(opened, partition)]
    numbers: dict[bytes, list[int]] = {}
    for row in rows:
        numbers.setdefault(row["key"], []).append(json.loads(row["value"])["number"])
    assert sorted(number for each in numbers.values() for number in each) == list(range(len(FLIGHTS)))
    return numbers


def test_page_runs_each_program():
    assert set(COMMANDS) == set(LAST_LINES) == {program.name for program in JOBS}


@pytest.mark.parametrize("programs", [FEW, *full(ALL)], ids=len)
def test_programs_run_with_package_from_py_files(programs, shell, cluster, clone):
    send(BUILD_ZIP, clone, shell, "spark_cas.zip")
    run_programs(programs, shell, cluster, SEND_ZIP, "spark_cas.zip")


@pytest.mark.full
def test_programs_run_with_environment_from_archives(shell, cluster, clone):
    send(BUILD_ENVIRONMENT, clone, shell, "environment.tar.gz")
    run_programs(ALL, shell, cluster, SEND_ENVIRONMENT, "environment")


ALONE = SEND_ZIP.replace(PYTHONPATH_LINE, "")
WITHOUT_FILES = SEND_ZIP.replace("--py-files spark_cas.zip", "")
WITH_WHEEL = SEND_ZIP.replace("--py-files spark_cas.zip", "--py-files spark_cas.whl")
COPY = "submit jobs/stream_copy.py --from /data/log --to /data/copy --job copy --checkpoint /data/checkpoint"
READ = "submit read_log.py /data/log"
ABSENT = "No module named 'spark_cas'"


@pytest.mark.full
@pytest.mark.parametrize(
    ("commands", "error"),
    [
        pytest.param(SEND_ZIP + READ, None, id="read"),
        pytest.param(ALONE + READ, "[DATA_SOURCE_NOT_FOUND]", id="read without PYTHONPATH"),
        pytest.param(ALONE + READ + " register", None, id="read registered without PYTHONPATH"),
        pytest.param(ALONE + COPY, ABSENT, id="stream without PYTHONPATH"),
        pytest.param(WITHOUT_FILES + COMMANDS["bulk_load.py"], ABSENT, id="load without --py-files"),
        pytest.param(WITH_WHEEL + COMMANDS["bulk_load.py"], ABSENT, id="load with a wheel"),
    ],
)
def test_spark_finds_package_as_page_states(commands, error, shell, clone):
    """If a case without PYTHONPATH fails, Spark gives the files to more processes. Then change the page."""
    send(BUILD_ZIP, clone, shell, "spark_cas.zip")
    shutil.copy(shell.folder / "spark_cas.zip", shell.folder / "spark_cas.whl")
    with open_log(str(shell.data / "log")) as log:
        log.create(2)
        append_foreign(log, 0, "value")
    write_flights(shell)
    (shell.folder / "read_log.py").write_text(READ_LOG)

    done = shell(commands)

    if error is None:
        assert done.returncode == 0, done.stderr
        assert "rows: 1" in done.stdout
    else:
        assert done.returncode == 1, done.stdout
        assert error in done.stdout + done.stderr
