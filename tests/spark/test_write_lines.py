"""Each batch write, bulk load and micro-batch logs one line, which the user sees. Each test starts a local driver."""

import json
import os
import re
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError

from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.log_lines import LOG_LEVEL
from tests.conftest import QUIET, ROOT
from tests.kafka.clients import committed_values, create_topic
from tests.kafka.faulted import by_writer
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rig import proxied_broker
from tests.kafka.proxy.rules import Fault
from tests.support.metrics import metrics_server, values_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import sys, time
from pyspark.sql import SparkSession
from spark_cas import route
from spark_cas.programs.bulk_load import main
folder, remote = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]") if remote else SparkSession.builder.master("local[1]")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
log = {"path": folder + "/log", "partitions": 1, "metrics": "file:/canary/metrics.prom"}

def rows(count):
    return spark.range(count).selectExpr("string(id) AS key", "string(id) AS value")

def save(count, **options):
    options = log | options
    route(rows(count), options).write.format("conditional-log").mode("append").options(**options).save()

def fail():
    try:
        save(5, job="late", expectedOffsets='{"0": 0}')
    except Exception:
        pass

def stream(name, start):
    spark.readStream.schema("id BIGINT").parquet(folder + "/numbers").createOrReplaceTempView(name)
    frame = spark.sql(f"SELECT string(id) AS key, string(id) AS value FROM {name}")
    writer = start(frame).option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
    writer.start().awaitTermination()

def sink(frame):
    options = log | {"job": "sink"}
    return route(frame, options).writeStream.format("conditional-log").options(**options)

def load(*more):
    arguments = ["--input", folder + "/numbers", "--format", "parquet", "--key", "string(id)", "--value-json"]
    main([*arguments, "--log", log["path"], "--job", "bulk", *more], "load", lambda _: spark)

spark.range(3).write.parquet(folder + "/numbers")
for name, write in {
    "load": lambda: save(5, job="load"),
    "rerun": lambda: save(5, job="load"),
    "blind": lambda: save(2, idempotence="off"),
    "rejected": fail,
    "micro-batch": lambda: stream("sink", sink),
    "foreachBatch": lambda: stream(
        "each", lambda frame: frame.writeStream.foreachBatch(lambda _, number: save(4, job="each", batchId=number))
    ),
    "exported": lambda: save(6, job="exported", metrics="otel"),
    "bulk": load,
    "bulk rerun": load,
    "bulk verified": lambda: load("--verify"),
}.items():
    print("begin", name, file=sys.stderr, flush=True)
    write()
    time.sleep(0.5)  # the JVM copies the output of its Python processes
"""

RETRIED = """
import json, sys, time
from pyspark.sql import SparkSession
from spark_cas import route
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = json.loads(sys.argv[1])
frame = spark.range(5).selectExpr("string(id) AS key", "string(id) AS value")
route(frame, options).write.format("conditional-log").mode("append").options(**options).save()
time.sleep(0.5)
"""


@pytest.fixture
def server():
    with metrics_server() as server:
        yield server


def errors_of(folder, program, *arguments, **environment):
    """Run a program as a driver whose log has only errors and the lines of writes, and return its stderr."""
    quiet = f"--driver-java-options -Dlog4j2.configurationFile=file:{QUIET} pyspark-shell"
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": quiet, LOG_LEVEL: "info", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


@pytest.fixture(params=["classic", pytest.param("connect", marks=pytest.mark.full)])
def lines(request, tmp_path, server):
    """The lines of each write on stderr."""
    remote = "" if request.param == "classic" else "connect"
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "SPARK_TESTING": "1"}  # a free port for Spark Connect
    errors = errors_of(tmp_path, PROGRAM, str(tmp_path), remote, **environment)
    parts = re.split(r"^begin (.*)\n", errors, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (part.splitlines() for part in parts[1::2]), strict=True))


def test_each_write_logs_one_line(lines, tmp_path, server):
    assert server.counts()["spark_cas.rows"] == 6
    found = {}
    for name, each in lines.items():
        [line] = [line for line in each if " INFO spark_cas: write " in line]
        fields = dict(field.split("=", 1) for field in line.split() if "=" in field)
        assert fields.pop("log") == f"file://{tmp_path}/log"
        assert float(fields.pop("seconds")) > 0
        found[name] = " ".join(fields.values())
        assert not any("canary" in line for line in each)
    assert any("metrics were not published" in line for line in lines["load"])
    # job, batch of a stream, rows, existing rows, chunks, conflicts, retries
    assert found == {
        "load": "load 5 0 1 0 0",
        "rerun": "load 0 5 0 0 0",
        "blind": "unnamed 2 0 1 0 0",
        "rejected": "late 0 0 0 1 0",
        "micro-batch": "sink 0 3 0 1 0 0",
        "foreachBatch": "each 0 4 0 1 0 0",
        "exported": "exported 6 0 1 0 0",
        "bulk": "bulk 3 0 1 0 0",
        "bulk rerun": "bulk 0 3 0 0 0",
        "bulk verified": "bulk 0 3 0 0 0",
    }


@pytest.mark.kafka
def test_retries_are_logged_and_counted(conf, tmp_path):
    """The first response reports an unknown producer id, so the writer appends its chunk again."""
    with proxied_broker(conf) as proxied:
        topic = create_topic(proxied.direct)
        spec = KafkaSpec(proxied.bootstrap, topic, topic)
        error = KafkaError.UNKNOWN_PRODUCER_ID
        rule = proxied.proxy.add(Fault.FAIL_RESPONSE, Api.PRODUCE, where=by_writer(spec), error=error)
        file = tmp_path / "metrics.prom"
        options = {"kafka.bootstrap.servers": proxied.bootstrap, "topic": topic, "idPrefix": topic, "job": "load"}
        options |= {"metrics": f"file:{file}"}
        errors = errors_of(tmp_path, RETRIED, json.dumps(options))
        assert rule.reached.has_come
        assert sorted(committed_values(proxied.direct, topic)) == [*"01234"]
    [line] = [line for line in errors.splitlines() if " INFO spark_cas: write complete: job=load " in line]
    values = values_in(file.read_text(), job="load")
    counts = [values[f"spark_cas_{each}_total"] for each in ("writes", "rows", "chunks", "retries")]
    assert counts == [1, 5, 1, 1]
    assert " rows=5 existing=0 chunks=1 conflicts=0 retries=1 " in line
