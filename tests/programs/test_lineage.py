"""OpenLineage events of loads. Those of writes and micro-batches are in `tests.spark.test_write_lines`."""

import os
import socket
import subprocess
import sys
import time

import pytest
from openlineage.client.event_v2 import RunState

from spark_cas.options.lineage import Lineage, dataset_of, send_run
from tests.long import full
from tests.support.lineage import lineage_receiver

TO_LOG = ("--value", "value", "--partitions", "1", "--job", "load-1")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)


@pytest.fixture
def receiver(monkeypatch):
    with lineage_receiver() as server:
        monkeypatch.setenv("OPENLINEAGE_URL", server.url)
        yield server


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
@pytest.mark.parametrize("is_up", [True, *full(False)], ids=["error", "no server"])
def test_lineage_server_that_fails_does_not_fail_a_load(load, receiver, file, monkeypatch, is_up):
    receiver.status = 400
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
    monkeypatch.setattr("spark_cas.options.lineage._failed", {})
    receiver.status = 400

    def send():
        send_run("job", "file:///data/log", (1, 2), rows=1, error="", is_micro_batch=True)

    set_timing(cached_age=60.0)
    for _ in range(3):
        send()
    assert len(receiver.events) == 1
    # On a reset connection, urllib3 retries and logs a warning of its own.
    assert [record.levelname for record in caplog.records if record.name == "spark_cas"] == ["WARNING"]
    receiver.status = 201
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
        "import sys; from spark_cas.options.lineage import Lineage; "
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
