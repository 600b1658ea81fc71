"""The programs that present the project: the demonstration, and the benchmark in small sizes."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from jobs.demo_steps import write_flights
from spark_cas import open_log
from tests.long import full
from tests.spark.short_runs import ARGUMENTS

OF_YEAR = r"2013-12-28T\d\d:00:00Z │ EWR +│ DEN", "4,039"
OF_MONTH = r"2013-01-31T22:00:00Z │ EWR +│ PDX", "3,144"
"""The newest flight of an aircraft, and the number of the others, in the flights of the year and of January."""
PATIENCE = 300
"""Seconds that a program may take on a busy machine."""

pytestmark = [pytest.mark.spark, pytest.mark.timeout(PATIENCE + 20)]

ROOT = Path(__file__).parents[2]


def run(folder, *arguments):
    """Run a program that writes its files into a folder. Return the text on stdout."""
    settings = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_CONF_DIR": str(ROOT / "conf"),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*ARGUMENTS, "pyspark-shell"]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "COLUMNS": "120",
    }
    done = subprocess.run(
        [sys.executable, *arguments, "--into", folder],
        env=os.environ | settings,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_month(folder):
    """Write the flights of January. The demonstration uses existing files, and does not write those of the year."""
    for file in write_flights(folder).iterdir():
        flights = pq.read_table(file)
        pq.write_table(flights.filter(pc.equal(flights["month"], 1)), file)


def require_state(said, picture, flight, others):
    """Check that the table shows the newest flight of an aircraft, and that the picture is a PNG file."""
    assert re.search(rf"N14228 +│ {flight} ", said)
    assert f"These and {others} more are the state" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("is_whole", [False, *full(True)], ids=["month", "year"])
def test_the_demonstration(tmp_path, is_whole):
    if not is_whole:
        write_month(tmp_path)
    rows = 336_776 if is_whole else 27_004
    said = run(tmp_path, ROOT / "jobs" / "demo.py")
    _, load, again, stale, state = re.split(r"^\d\. ", said, flags=re.MULTILINE)
    assert f"{rows:,} rows in " in load
    assert "0 rows appended in " in again
    assert "rejected: [CONFLICT] " in stale
    require_state(state, tmp_path / "demo" / "departures.png", *(OF_YEAR if is_whole else OF_MONTH))
    with open_log(str(tmp_path / "demo" / "flights")) as log:
        assert sum(log.bounds(partition).end_offset for partition in range(4)) == rows


@pytest.mark.kafka
@pytest.mark.parametrize("is_whole", [False, *full(True)], ids=["month", "year"])
def test_the_demonstration_on_kafka(tmp_path, is_whole):
    if not is_whole:
        write_month(tmp_path)
    said = run(tmp_path, ROOT / "jobs" / "demo_kafka.py")
    _, load, again, foreign, state, stream = re.split(r"^\d\. ", said, flags=re.MULTILINE)
    assert f"{'336,776' if is_whole else '27,004'} rows in " in load
    assert "0 rows appended in " in again
    assert "rejected: [CONFLICT] " in foreign
    assert "The load appended nothing" in foreign
    require_state(state, tmp_path / "demo-kafka" / "departures.png", *(OF_YEAR if is_whole else OF_MONTH))
    assert re.search(r"2013-01-01 +│ +255 │ +236 │ +218 ", stream)
    assert "When it was started again, the query appended nothing" in stream


@pytest.mark.full
def test_the_benchmark(tmp_path):
    run(tmp_path, "-m", "benchmarks", "--quick", "--only", "write", "read")
    results = json.loads((tmp_path / "bench.json").read_text())
    assert [each["name"] for each in results] == ["write", "read"]
    for each in results:
        assert set(each) == {"name", "ours", "peer", "ratio", "unit"}
        assert each["unit"] == "s"
        assert min(each["ours"], each["peer"], each["ratio"]) > 0


@pytest.mark.full
@pytest.mark.kafka
@pytest.mark.cluster
@pytest.mark.parametrize("parts", [("rows", "partitions", "chunks"), ("executors", "kafka-partitions", "requests")])
def test_the_benchmark_of_growth(tmp_path, parts):
    said = run(tmp_path, "-m", "benchmarks.scale", "--quick", "--only", *parts)
    found = json.loads((tmp_path / "scale.json").read_text())
    assert set(found) == set(parts) - {"requests"}
    for series in found.values():
        for each in series:
            assert len(each["turns"]) == 2, "sizes"
            assert all(took["seconds"] > 0 for turns in each["turns"].values() for took in turns)
    drawn = {"rows": "rows", "partitions": "partitions", "chunks": "chunks", "kafka-partitions": "partitions"}
    for picture in {drawn[part] for part in parts if part in drawn}:
        assert (tmp_path / "growth" / f"{picture}.svg").read_text().rstrip().endswith("</svg>")
    assert ("Kafka: append of a chunk" in said) == ("requests" in parts)
