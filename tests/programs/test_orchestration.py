"""The examples of docs/orchestration.md, run by Airflow and Dagster in an environment of their own."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pages import blocks
from tests.programs.loading import all_records
from tests.spark.short_runs import conf_folder

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
PAGE = "docs/orchestration.md"
DAY = "2026-11-29"
AIRFLOW = ("airflow", "dags", "test", "flights", DAY)
DAGSTER = ("dagster", "asset", "materialize", "--select", "flights", "-f", "flights_dagster.py", "--partition", DAY)
SPARK_CAS = f"""#!/bin/sh
echo "$@" >> "$CALLS"
[ "$EXIT_CODE" = 0 ] || exit "$EXIT_CODE"
PYTHONPATH={ROOT} exec {sys.executable} -m spark_cas.cli "$@"
"""
"""A program that ends with an exit code, or is the real one if the exit code is 0."""


def test_airflow_and_dagster_load_a_day_once_and_retry_only_temporary_failures(tmp_path):
    versions = re.findall(r"(Airflow|Dagster) (\d+(?:\.\d+)+)", (ROOT / PAGE).read_text())
    packages = {"Airflow": "apache-airflow", "Dagster": "dagster"}
    venv.create(tmp_path / "venv", with_pip=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *(f"{packages[name]}=={version}" for name, version in versions)], check=True, timeout=600)

    pipeline, calls = tmp_path / "pipeline", tmp_path / "calls"
    pipeline.mkdir()
    examples = [each.text for each in blocks(PAGE) if each.language == "python"]
    for name, text in zip(("flights_load", "flights_airflow", "flights_dagster"), examples, strict=True):
        (pipeline / f"{name}.py").write_text(text.replace("/data/", f"{tmp_path}/").replace("delay=60", "delay=0"))
    program = tmp_path / "bin/spark-cas"
    program.parent.mkdir()
    program.write_text(SPARK_CAS)
    program.chmod(0o755)
    landing = tmp_path / f"landing/flights/{DAY}"
    landing.mkdir(parents=True)
    flights = pa.table({"tailnum": ["N14228", "N24211", "N14228"], "time_hour": [5, 6, 7]})
    pq.write_table(flights, landing / "flights.parquet")

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "PATH": os.pathsep.join([str(program.parent), str(tmp_path / "venv/bin"), os.environ["PATH"]]),
        "CALLS": str(calls),
        "SPARK_CONF_DIR": conf_folder(tmp_path / "conf"),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(pipeline),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "0",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
    }

    def run(command, exit_code=0):
        """Run a command, and return its exit code and the calls of spark-cas."""
        calls.write_text("")
        names = environment | {"EXIT_CODE": str(exit_code)}
        ended = subprocess.run(command, cwd=pipeline, env=names, check=False, timeout=200)
        return ended.returncode, calls.read_text().splitlines()

    assert run(("airflow", "db", "migrate")) == (0, [])
    (code, [load]), rerun = run(DAGSTER), run(AIRFLOW)
    assert code == 0
    assert load.endswith(f"--job flights-{DAY}")
    assert rerun == (0, [load])
    assert sum(map(len, all_records(f"{tmp_path}/logs/flights"))) == flights.num_rows
    for command in (DAGSTER, AIRFLOW):
        assert run(command, exit_code=3) == (1, [load])
        assert run(command, exit_code=1) == (1, [load] * 4)
