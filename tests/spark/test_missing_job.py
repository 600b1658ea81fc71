"""A write without a job name logs one warning, in each way to write. Each test starts a local driver."""

import os
import subprocess
import sys

import pytest

from tests.conftest import QUIET, ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import os, sys, time
from pyspark.sql import SparkSession
from spark_cas import route
folder, remote = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]") if remote else SparkSession.builder.master("local[1]")
builder = builder.config("spark.sql.warehouse.dir", folder + "/warehouse").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
rows = spark.createDataFrame([("N1", "x", 0)], "key STRING, value STRING, partition INT").coalesce(1)
log = {"path": folder + "/log", "partitions": 1}

def save(frame, **options):
    frame.write.format("conditional-log").mode("append").options(**options).save()

def insert(options):
    columns = "key STRING, value STRING, partition INT"
    spark.sql(f"CREATE TABLE IF NOT EXISTS flights_in ({columns}) USING `conditional-log`")
    rows.createOrReplaceTempView("flights")
    spark.sql(f"INSERT INTO flights_in WITH ({options}) SELECT key, value, partition FROM flights")

def warnings():
    return open(folder + "/errors").read().count("name no job")

WRITES = {
    "routed with a dict": lambda: save(route(rows, log), **log),
    "routed with a path": lambda: save(route(rows, log["path"]), **log),
    "not routed": lambda: save(rows, routed="true", **log),
    "requested": lambda: save(route(rows, log), idempotence="requested", **log),
    "SQL": lambda: insert(f"path='{log['path']}', routed='true'"),
    "with a job": lambda: save(route(rows, {**log, "job": "a"}), job="a", **log),
    "a second time": lambda: save(route(rows, log), **log),
    "off": lambda: save(rows, idempotence="off", **log),
}
for name, write in WRITES.items():
    before = warnings()
    write()
    # The JVM copies the output of its Python processes.
    for _ in range(100):
        if warnings() > before or name in ("with a job", "off"):
            break
        time.sleep(0.1)
    time.sleep(0.5)
    print(name, warnings() - before, sep=": ")
"""


@pytest.mark.parametrize("remote", ["", "connect"])
def test_each_write_without_a_job_logs_one_warning(tmp_path, remote):
    quiet = f"--driver-java-options -Dlog4j2.configurationFile=file:{QUIET} pyspark-shell"
    environment = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_TESTING"] = "1"  # a free port for Spark Connect
    with (tmp_path / "errors").open("wb") as errors:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), remote],
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": quiet, **environment},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=240,
            check=False,
            cwd=tmp_path,
        )
    assert ran.returncode == 0, (tmp_path / "errors").read_text()
    assert dict(line.split(": ") for line in ran.stdout.splitlines()) == {
        "routed with a dict": "1",
        "routed with a path": "1",
        "not routed": "1",
        "requested": "1",
        "SQL": "1",
        "with a job": "0",
        "a second time": "1",
        "off": "0",
    }
