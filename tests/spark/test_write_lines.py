"""Each batch write, bulk load and micro-batch logs one line and sends one lineage run. A local driver runs all."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError
from openlineage.client.event_v2 import RunEvent, RunState

from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.options.lineage import dataset_of
from tests.conftest import QUIET, ROOT
from tests.kafka.clients import committed_values, create_topic
from tests.kafka.faulted import by_writer
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rig import proxied_broker
from tests.kafka.proxy.rules import Fault
from tests.long import full
from tests.spark.short_runs import ARGUMENTS
from tests.support.lineage import lineage_receiver
from tests.support.metrics import metrics_server, values_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]

PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession
from spark_cas import route
from spark_cas.programs.bulk_load import main
folder, remote, topic = sys.argv[1:]
builder = SparkSession.builder.remote("local[1]") if remote else SparkSession.builder.master("local[1]")
spark = builder.config("spark.sql.warehouse.dir", folder + "/warehouse").getOrCreate()
log = {"path": folder + "/log", "partitions": 1, "metrics": "file:/canary/metrics.prom"}

def written_lines():
    return open(folder + "/errors").read().count(" INFO spark_cas: write ")

def rows(count):
    return spark.range(count).selectExpr("string(id) AS key", "string(id) AS value")

def append(frame, options):
    frame.write.format("conditional-log").mode("append").options(**options).save()

def save(count, **options):
    options = log | options
    append(route(rows(count), options), options)

def failing(write):
    try:
        write()
    except Exception:
        pass
    else:
        raise AssertionError("the write did not fail")

def bad():
    return rows(1).selectExpr("key", "string(raise_error(key)) AS value", "0 AS partition").coalesce(1)

def failing_sink(frame):
    options = log | {"job": "failing", "routed": "true"}
    frame = frame.selectExpr("key", "string(raise_error(key)) AS value", "0 AS partition").coalesce(1)
    return frame.writeStream.format("conditional-log").options(**options)

def insert():
    columns = "key STRING, value STRING, partition INT"
    spark.sql(f"CREATE TABLE flights_in ({columns}) USING `conditional-log`")
    rows(1).selectExpr("*", "0 AS partition").coalesce(1).createOrReplaceTempView("flights")
    options = f"path='{log['path']}', routed='true'"
    spark.sql(f"INSERT INTO flights_in WITH ({options}) SELECT key, value, partition FROM flights")

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

def retry():
    options = json.loads(topic)
    append(route(rows(5), options), options)

spark.range(3).write.parquet(folder + "/numbers")
for name, write in {
    "load": lambda: save(5, job="load"),
    "rerun": lambda: save(5, job="load"),
    "blind": lambda: save(2, idempotence="off"),
    "rejected": lambda: failing(lambda: save(5, job="late", expectedOffsets='{"0": 0}')),
    "failed task": lambda: failing(lambda: append(bad(), log | {"job": "bad", "routed": "true"})),
    "failed task, blind": lambda: failing(
        lambda: append(bad(), log | {"idempotence": "off", "expectedOffsets": "none", "routed": "true"})
    ),
    "micro-batch": lambda: stream("sink", sink),
    "failed micro-batch": lambda: failing(lambda: stream("failing", failing_sink)),
    "foreachBatch": lambda: stream(
        "each", lambda frame: frame.writeStream.foreachBatch(lambda _, number: save(4, job="each", batchId=number))
    ),
    "exported": lambda: save(6, job="exported", metrics="otel"),
    "bulk": load,
    "bulk rerun": load,
    "bulk verified": lambda: load("--verify"),
    "no job": lambda: save(1),
    "no job, routed with a path": lambda: append(route(rows(1), log["path"]), log),
    "no job, not routed": lambda: append(
        rows(1).selectExpr("*", "0 AS partition").coalesce(1), log | {"routed": "true"}
    ),
    "no job, requested": lambda: save(1, idempotence="requested"),
    "no job, SQL": insert,
    "no job, a second time": lambda: save(1),
    "retried": retry,
}.items():
    print("begin", name, file=sys.stderr, flush=True)
    before = written_lines()
    write()
    deadline = time.monotonic() + 30  # the JVM copies the output of its Python processes
    while written_lines() == before and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
"""

WRITES = {
    # job, batch of a stream, rows, existing rows, chunks, conflicts, retries
    "load": "load 5 0 1 0 0",
    "rerun": "load 0 5 0 0 0",
    "blind": "unnamed 2 0 1 0 0",
    "rejected": "late 0 0 0 1 0",
    "failed task": "bad 0 0 0 0 0",
    "failed task, blind": "unnamed 0 0 0 0 0",
    "failed micro-batch": "failing 0 0 0 0 0 0",
    "micro-batch": "sink 0 3 0 1 0 0",
    "foreachBatch": "each 0 4 0 1 0 0",
    "exported": "exported 6 0 1 0 0",
    "bulk": "bulk 3 0 1 0 0",
    "bulk rerun": "bulk 0 3 0 0 0",
    "bulk verified": "bulk 0 3 0 0 0",
    "retried": "topic 5 0 1 0 1",
}


@dataclass(frozen=True)
class Ran:
    """The result of the program."""

    lines: dict[str, list[str]]
    """The lines of each write on stderr."""
    log: str
    topic: str
    values: list[str]
    """The committed values in the topic."""
    metrics: str
    """The metrics of the write to the topic, in Prometheus' format."""
    exported: float
    """The rows of all writes with the target otel."""
    events: list[RunEvent]


@pytest.fixture(scope="module", params=["classic", *full("connect")])
def ran(request, conf, tmp_path_factory):
    """Run the program as a driver whose log has only errors, warnings and the lines of writes.

    The first response to the append to the topic reports an unknown producer id, so the writer repeats the append.
    """
    folder = tmp_path_factory.mktemp("writes")
    file = folder / "metrics.prom"
    quiet = ["--driver-java-options", f"-Dlog4j2.configurationFile=file:{QUIET}", *ARGUMENTS, "pyspark-shell"]
    with proxied_broker(conf) as proxied, metrics_server() as server, lineage_receiver() as receiver:
        topic = create_topic(proxied.direct)
        where = by_writer(KafkaSpec(proxied.bootstrap, topic, topic))
        error = KafkaError.UNKNOWN_PRODUCER_ID
        rule = proxied.proxy.add(Fault.FAIL_RESPONSE, Api.PRODUCE, where=where, error=error)
        options = {"kafka.bootstrap.servers": proxied.bootstrap, "topic": topic, "idPrefix": topic, "job": "topic"}
        options |= {"metrics": f"file:{file}"}
        arguments = [str(folder), "" if request.param == "classic" else "connect", json.dumps(options)]
        environment = {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join(quiet),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_TESTING": "1",  # a free port for Spark Connect
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
            "OPENLINEAGE_URL": receiver.url,
            "HOME": str(folder),  # without the configuration of a user
        }
        with (folder / "errors").open("wb") as errors:
            ended = subprocess.run(
                [sys.executable, "-c", PROGRAM, *arguments],
                env=os.environ | environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=300,
                check=False,
                cwd=folder,
            )
        printed = (folder / "errors").read_text()
        assert ended.returncode == 0, printed
        assert rule.reached.has_come
        parts = re.split(r"^begin (.*)\n", printed, flags=re.MULTILINE)[1:]
        yield Ran(
            lines=dict(zip(parts[::2], (part.splitlines() for part in parts[1::2]), strict=True)),
            log=f"file://{folder}/log",
            topic=f"kafka://{proxied.bootstrap}/{topic}",
            values=committed_values(proxied.direct, topic),
            metrics=file.read_text(),
            exported=server.counts()["spark_cas.rows"],
            events=receiver.events,
        )


def log_of(ran, name):
    return ran.topic if name == "retried" else ran.log


def fields_of(lines):
    """Return the fields of the only line about a write."""
    [line] = [line for line in lines if " INFO spark_cas: write " in line]
    return dict(field.split("=", 1) for field in line.split() if "=" in field)


def test_each_write_logs_one_line(ran):
    assert ran.exported == 6
    result = {}
    for name, lines in ran.lines.items():
        fields = fields_of(lines)
        assert fields.pop("log") == log_of(ran, name)
        # If no task succeeded, nothing reports when the micro-batch began.
        assert float(fields.pop("seconds")) > 0 or name == "failed micro-batch"
        if name.startswith("no job"):
            fields.pop("job")
            assert " ".join(fields.values()) == "1 0 1 0 0", name
        else:
            result[name] = " ".join(fields.values())
        assert not any("canary" in line for line in lines)
    assert any("metrics were not published" in line for line in ran.lines["load"])
    assert result == WRITES


def test_each_write_without_a_job_logs_one_warning(ran):
    warnings = {name: sum("name no job" in line for line in lines) for name, lines in ran.lines.items()}
    assert warnings == {name: int(name.startswith("no job")) for name in ran.lines}


def test_retries_are_logged_and_counted(ran):
    assert sorted(ran.values) == [*"01234"]
    assert fields_of(ran.lines["retried"])["retries"] == "1"
    values = values_in(ran.metrics, job="topic")
    counts = [values[f"spark_cas_{each}_total"] for each in ("writes", "rows", "chunks", "retries")]
    assert counts == [1, 5, 1, 1]


def test_each_write_of_spark_and_each_micro_batch_is_one_run(ran):
    runs: dict[str, list[Any]] = {}
    for event in ran.events:
        runs.setdefault(event.run.runId, []).append(event)
    assert all(first.eventType == RunState.START for first, _ in runs.values())
    assert all(first.eventTime <= last.eventTime for first, last in runs.values())
    for (name, lines), events in zip(ran.lines.items(), runs.values(), strict=True):
        fields = fields_of(lines)
        last = events[-1]
        for event in events:
            assert [(each.namespace, each.name) for each in event.outputs] == [dataset_of(log_of(ran, name))]
        is_named = name not in ("blind", "failed task, blind") and not name.startswith("no job")
        assert last.job.name == (fields["job"] if is_named else f"append to {dataset_of(ran.log)[1]}")
        is_stream = name in ("micro-batch", "failed micro-batch", "foreachBatch")
        assert last.job.facets["jobType"]["processingType"] == ("STREAMING" if is_stream else "BATCH")
        assert last.outputs[0].outputFacets["outputStatistics"]["rowCount"] == int(fields["rows"])
        error = last.run.facets.get("errorMessage", {"message": None})["message"]
        expected = "CONFLICT" if name == "rejected" else "ABORTED" if name.startswith("failed") else None
        assert (last.eventType, error) == (RunState.FAIL if expected else RunState.COMPLETE, expected)
