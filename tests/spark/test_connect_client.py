"""An environment that has only the client of Spark Connect: no py4j, no Java, and other versions of libraries."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parents[2]
MISSING = """
import spark_cas
from spark_cas.core.errors import SparkSetupError
try:
    spark_cas.route
except SparkSetupError as error:
    print(error)
"""
CLIENT = """
import importlib.util
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from spark_cas import append_if_unchanged, bootstrap, error_from_text, route, verify_log

assert importlib.util.find_spec("py4j") is None
address, path, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
rows = spark.range(40).selectExpr("CONCAT('N', id % 7) AS key", "CAST(id AS STRING) AS value")

def save(frame, **options):
    options = {"path": path, "partitions": 2, **options}
    route(frame, options).write.format("conditional-log").mode("append").options(**options).save()

for _ in range(2):
    save(rows, job="load-1")
assert verify_log(rows, path).holds
log = bootstrap(spark, path)
assert (log.records.count(), log.state.count()) == (40, 7)
changes = rows.limit(1).select("key", "value", sf.lit(0).cast("long").alias("expected_offset"))
assert append_if_unchanged(changes, {"path": path, "job": "change-1"}).rejected.count() == 1
try:
    save(rows, job="load-2", expectedOffsets='{"0": 1, "1": 1}')
except Exception as error:
    print(type(error_from_text(str(error))).__name__)

def append(batch, number):
    save(batch, path=path + "-copy", job="copy", batchId=number)

records = spark.readStream.format("conditional-log").option("startingOffsets", "earliest").load(path)
query = records.select("key", "value").writeStream.foreachBatch(append).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination(200)
print(spark.read.format("conditional-log").load(path + "-copy").count())
spark.stop()
"""


@pytest.fixture
def run(tmp_path):
    """A function that runs a program, which finds neither the source tree nor the Spark of the server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, env=kept, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    return run


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_client_of_spark_connect_is_enough(spark, connect_port, run, path, tmp_path):
    venv.create(tmp_path / "venv")
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    run(*install, str(ROOT))
    message = run(python, "-c", MISSING)
    assert "no pyspark" in message
    for package in ("'spark-cas[spark]'", "pyspark-client"):
        assert f"pip install {package}" in message
    run(*install, f"pyspark-client<={pyspark.__version__}")
    program = tmp_path / "client.py"  # Spark takes a program of `python -c` for a doctest
    program.write_text(CLIENT)
    output = run(python, str(program), f"sc://127.0.0.1:{connect_port}", path, f"{tmp_path}/checkpoint")
    assert output.split() == ["ConflictError", "40"]
