"""OpenLineage events of loads and micro-batches, received by an HTTP server and read with the library."""

import json
import os
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from spark_cas.options.lineage_and_metrics import Lineage, dataset_of, send_run
from tests.conftest import QUIET, ROOT

TO_LOG = ("--value", "value", "--partitions", "1", "--job", "load-1")


class Receiver(BaseHTTPRequestHandler):
    events: ClassVar[list[RunEvent]] = []
    status: ClassVar[int] = 201

    def do_POST(self):
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.events.append(event_of(fields))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_):
        """Print nothing."""


def event_of(fields):
    """Return an event of the library, whose classes check the values."""
    return RunEvent(
        eventTime=fields["eventTime"],
        producer=fields["producer"],
        eventType=RunState(fields["eventType"]),
        run=Run(**fields["run"]),
        job=Job(**fields["job"]),
        inputs=[InputDataset(**each) for each in fields["inputs"]],
        outputs=[OutputDataset(**each) for each in fields["outputs"]],
    )


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)


@pytest.fixture
def receiver(monkeypatch):
    monkeypatch.setattr(Receiver, "events", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
        yield Receiver
        server.shutdown()
        thread.join()


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a b.txt"
    file.write_text("one\ntwo\n")
    return file


@pytest.mark.spark
def test_load_sends_start_and_complete(load, receiver, file):
    assert load("--input", str(file), *TO_LOG)[0] == 0
    start, complete = receiver.events
    assert (start.eventType, complete.eventType) == (RunState.START, RunState.COMPLETE)
    assert start.run.runId == complete.run.runId
    assert (complete.job.namespace, complete.job.name) == ("default", "load-1")
    assert [(each.namespace, each.name) for each in complete.inputs] == [("file", str(file))]
    for event in (start, complete):
        assert [(each.namespace, each.name) for each in event.outputs] == [("file", load.log)]
    assert complete.outputs[0].outputFacets["outputStatistics"]["rowCount"] == 2


@pytest.mark.spark
def test_failed_load_sends_fail_with_its_code_alone(load, receiver, tmp_path):
    assert load("--input", str(tmp_path / "absent.txt"), *TO_LOG)[0] == 2
    start, fail = receiver.events
    assert (start.eventType, fail.eventType) == (RunState.START, RunState.FAIL)
    assert fail.run.facets["errorMessage"]["message"] == "UsageError"


@pytest.mark.spark
@pytest.mark.parametrize("is_up", [True, False], ids=["error", "no server"])
def test_lineage_server_that_fails_does_not_fail_a_load(load, receiver, file, monkeypatch, is_up):
    monkeypatch.setattr(Receiver, "status", 400)
    if not is_up:
        monkeypatch.setenv("OPENLINEAGE_URL", "http://user:hunter2@127.0.0.1:1")
    code, report, told = load("--input", str(file), *TO_LOG)
    assert (code, report["rows"]) == (0, 2)
    assert told.count("was not sent") == 1
    assert "hunter2" not in told
    assert len(receiver.events) == is_up


def test_lineage_server_that_hangs_stops_the_events(file, monkeypatch, set_timing):
    """The client retries for longer than its timeout."""
    set_timing(longest_request=0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        told: list[str] = []
        lineage = Lineage("job", "file:///data/log", told.append)
        began = time.monotonic()
        lineage.start()
        lineage.end("COMPLETE")
        assert time.monotonic() - began < 2
    assert ["was not sent" in each for each in told] == [True]


def test_writes_send_no_events_for_a_time_after_a_failure(receiver, monkeypatch, caplog, set_timing):
    monkeypatch.setattr("spark_cas.options.lineage_and_metrics._failed", {})
    monkeypatch.setattr(Receiver, "status", 400)

    def send():
        send_run("job", "file:///data/log", (1, 2), rows=1, error="", is_micro_batch=True)

    set_timing(cached_age=60.0)
    for _ in range(3):
        send()
    assert len(receiver.events) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.setattr(Receiver, "status", 201)
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    send()
    assert len(receiver.events) == 3


@pytest.mark.spark
def test_load_without_configuration_sends_and_prints_nothing(load, file):
    code, _, told = load("--input", str(file), *TO_LOG)
    assert (code, "OpenLineage" in told) == (0, False)


def test_library_is_imported_only_if_it_is_configured(tmp_path):
    program = (
        "import sys; from spark_cas.options.lineage_and_metrics import Lineage; "
        "Lineage('load-1', 'file:/log', print).start(); print('openlineage.client' in sys.modules)"
    )
    without = {name: value for name, value in os.environ.items() if not name.startswith("OPENLINEAGE_")}
    for variables, imported in (({}, "False"), ({"OPENLINEAGE_CONFIG": "none.yml"}, "True")):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env=without | variables, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.strip() == imported


@pytest.mark.spark
def test_configuration_file_of_the_library_is_used(load, receiver, file, monkeypatch, tmp_path):
    address = os.environ["OPENLINEAGE_URL"]
    monkeypatch.delenv("OPENLINEAGE_URL")
    (tmp_path / "openlineage.yml").write_text(f"transport:\n  type: http\n  url: {address}\n")
    assert load("--input", str(file), *TO_LOG)[0] == 0
    assert len(receiver.events) == 2


PROGRAM = """
import sys
from contextlib import suppress
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_cas import route
from spark_cas.programs.bulk_load import main
folder = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
log = {"path": folder + "/log", "partitions": 1}
rows = spark.range(5).selectExpr("string(id) AS key", "string(id) AS value")

def save(frame, **options):
    with suppress(PySparkException):
        options = log | options
        route(frame, options).write.format("conditional-log").mode("append").options(**options).save()

def stream():
    spark.readStream.schema("id BIGINT").parquet(folder + "/numbers").createOrReplaceTempView("numbers")
    frame = route(spark.sql("SELECT string(id) AS key, string(id) AS value FROM numbers"), log)
    writer = frame.writeStream.format("conditional-log").option("checkpointLocation", folder + "/live")
    writer.options(**log, job="live").trigger(availableNow=True).start().awaitTermination()

spark.range(3).write.parquet(folder + "/numbers")
save(rows, job="load")
save(rows)
save(rows, job="late", expectedOffsets='{"0": 0}')
stream()
spark.readStream.schema("id BIGINT").parquet(folder + "/numbers").writeStream.foreachBatch(
    lambda _, number: save(rows, job="each", batchId=number)
).option("checkpointLocation", folder + "/each").trigger(availableNow=True).start().awaitTermination()
main(
    ["--input", folder + "/numbers", "--format", "parquet", "--value-json", "--log", log["path"], "--job", "bulk"],
    "load",
    lambda _: spark,
)
"""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_each_write_of_spark_and_each_micro_batch_is_one_run(receiver, tmp_path):
    environment = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    quiet = f"--driver-java-options -Dlog4j2.configurationFile=file:{QUIET} pyspark-shell"
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | environment | {"PYSPARK_SUBMIT_ARGS": quiet},
        check=True,
        cwd=tmp_path,
        timeout=240,
    )
    runs: dict[str, list[Any]] = {}
    for event in receiver.events:
        assert [(each.namespace, each.name) for each in event.outputs] == [("file", f"{tmp_path}/log")]
        runs.setdefault(event.run.runId, []).append(event)
    assert all(first.eventType == RunState.START for first, _ in runs.values())
    assert all(first.eventTime <= last.eventTime for first, last in runs.values())
    found = []
    for _, last in runs.values():
        kind, rows = last.job.facets["jobType"], last.outputs[0].outputFacets["outputStatistics"]
        error = last.run.facets.get("errorMessage", {"message": None})
        found.append(
            (last.job.name, kind["processingType"], last.eventType.value, rows["rowCount"], error["message"])
        )
    assert found == [
        ("load", "BATCH", "COMPLETE", 5, None),
        (f"append to {tmp_path}/log", "BATCH", "COMPLETE", 5, None),
        ("late", "BATCH", "FAIL", 0, "CONFLICT"),
        ("live", "STREAMING", "COMPLETE", 3, None),
        ("each", "STREAMING", "COMPLETE", 5, None),
        ("bulk", "BATCH", "COMPLETE", 3, None),
    ]


@pytest.mark.parametrize(
    ("address", "dataset"),
    [
        ("file:///data/log", ("file", "/data/log")),
        ("file:/data/a b#.csv", ("file", "/data/a b#.csv")),
        ("kafka://one:9092,two:9092/flights", ("kafka://one:9092", "flights")),
        ("s3://bucket/logs/a", ("s3://bucket", "logs/a")),
        ("s3a://bucket/a/b.csv", ("s3://bucket", "a/b.csv")),
        ("gs://bucket/a", ("gs://bucket", "a")),
        ("abfss://box@account.dfs.core.windows.net/a", ("abfss://box@account.dfs.core.windows.net", "a")),
        ("hdfs://name:8020/data/a", ("hdfs://name:8020", "/data/a")),
    ],
)
def test_names_of_datasets(address, dataset):
    assert dataset_of(address) == dataset
