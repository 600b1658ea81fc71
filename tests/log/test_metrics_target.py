"""Measurements in each target: added to earlier ones, never an error, and without the address in a warning."""

import fcntl
import multiprocessing
import re
import time
from urllib.request import urlopen

import pytest
import yaml
from opentelemetry import metrics as opentelemetry
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from spark_cas.options import publish_metrics
from spark_cas.options.publish_metrics import METRICS, Measurement, publish
from spark_cas.options.table import metrics_target as target
from tests.long import full
from tests.objects.servers import running
from tests.pages import blocks
from tests.support.go_programs import built
from tests.support.metrics import metrics_server, values_in

SECONDS = 30
LABELS = {"log": "file:///data/log", "topic": "log", "job": "load 1/a"}


def measured(rows=5, behind=7.0, **labels):
    labels = LABELS | labels
    return [
        Measurement("rows", rows, labels),
        Measurement("seconds", 0.5, {**labels, "phase": "plan"}),
        Measurement("query.maxOffsetsBehindLatest", behind, labels),
    ]


EXPECTED = {"spark_cas_rows_total": 8, "spark_cas_seconds_total plan": 1, "spark_cas_query_maxOffsetsBehindLatest": 2}


def test_alert_of_the_page_names_an_exported_metric(tmp_path):
    file = tmp_path / "metrics.prom"
    publish(f"file:{file}", [Measurement(each, 1, LABELS) for each in METRICS])
    [alerts] = [yaml.safe_load(each.text) for each in blocks("docs/metrics.md") if each.language == "yaml"]
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert rules
    for rule in rules:
        assert rule.keys() == {"alert", "expr", "for"}
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        name, _, limit = rule["expr"].partition(" > ")
        assert name in values_in(file.read_text(), **LABELS)
        assert limit.isdecimal()


@pytest.fixture(autouse=True)
def no_failures(monkeypatch):
    monkeypatch.setattr(publish_metrics, "_failed", {})


@pytest.fixture
def server():
    with metrics_server() as server:
        yield server


class Pushgateway:
    """Prometheus's own server, started by the test."""

    def __init__(self, url):
        self.url = url

    def text(self):
        with urlopen(f"{self.url}/metrics", timeout=SECONDS) as response:  # noqa: S310 - it is http
            text = response.read().decode()
        # It also publishes metrics of its own process.
        return "".join(f"{line}\n" for line in text.splitlines() if "spark_cas_" in line)


@pytest.fixture(params=["double", *full("pushgateway")])
def gateway(request, server):
    if request.param == "double":
        yield server
        return
    program = built("github.com/prometheus/pushgateway", "v1.11.1")
    with running([str(program), "--web.listen-address=127.0.0.1:0"]) as url:
        yield Pushgateway(url)


@pytest.mark.parametrize(
    "text", ["otel", " file:/a/b.prom", "file:///a/b.prom", "http://host:9091", "https://h/push"]
)
def test_targets(text):
    assert target(text) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "OTEL", "file:b.prom", "file:/a/b", "file://host/b.prom", "file:/a#b.prom", "http://u:p@h", "h:9091"]
)
def test_other_text_is_no_target(text):
    with pytest.raises(ValueError, match=r"file:/folder/name\.prom"):
        target(text)


def test_file_keeps_other_series_and_adds_counters(tmp_path):
    file = tmp_path / "metrics.prom"
    file.write_text("# TYPE other gauge\nother 1\n")
    publish(f"file:{file}", measured())
    publish(f"file:{file}", measured(9, job="other"))
    publish(f"file://{file}", measured(3, 2.0))
    text = file.read_text()
    assert values_in(text, **LABELS) == EXPECTED
    assert text.count(LABELS["job"]) == len(EXPECTED)
    assert values_in(text, job="other")["spark_cas_rows_total"] == 9
    assert values_in(text)["other"] == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["metrics.prom", "metrics.prom.lock"]


def add_ten(file):
    for _ in range(10):
        publish(file, measured(1))


def test_processes_that_update_a_file_lose_no_counts(tmp_path):
    file = tmp_path / "metrics.prom"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_ten, args=(f"file:{file}",)) for _ in range(3)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    assert values_in(file.read_text())["spark_cas_rows_total"] == 30


@pytest.mark.timeout(900)
def test_pushgateway_adds_the_counters_of_each_group(gateway):
    publish(gateway.url, measured())
    publish(gateway.url, measured(9, job="other"))
    publish(f"{gateway.url}/", measured(3, 2.0))
    assert values_in(gateway.text(), **LABELS) == EXPECTED
    assert values_in(gateway.text(), job="other")["spark_cas_rows_total"] == 9


def test_push_has_only_the_series_of_its_group(server):
    publish(server.url, measured(9, job="other"))
    publish(server.url, measured())
    assert len(server.groups) == 2
    assert "other" not in server.pushed[-1]


def points(reader):
    data = reader.get_metrics_data()
    return {
        metric.name: (metric.unit, [(point.attributes, point.value) for point in metric.data.data_points])
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_opentelemetry_uses_the_provider_of_the_process(monkeypatch):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(opentelemetry, "get_meter_provider", lambda: provider)
    publish("otel", measured())
    publish("otel", measured(3, 2.0))
    found = points(reader)
    assert found["spark_cas.rows"] == ("{row}", [(LABELS, 8)])
    assert found["spark_cas.seconds"] == ("s", [({**LABELS, "phase": "plan"}, 1.0)])
    assert found["spark_cas.query.max_offsets_behind_latest"][1] == [(LABELS, 2.0)]
    provider.shutdown()


@pytest.mark.parametrize("temporality", ["", "cumulative"])
def test_opentelemetry_without_a_provider_exports_to_the_collector_of_the_environment(
    monkeypatch, server, temporality
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", temporality)
    publish("otel", measured())
    publish("otel", measured(3, 2.0))
    found = server.counts()
    assert (found["spark_cas.rows"], found["spark_cas.seconds plan"]) == (8, 1)
    assert found["spark_cas.query.max_offsets_behind_latest"] == 2
    metrics = server.exported[0].resource_metrics[0].scope_metrics[0].metrics
    assert {each.sum.aggregation_temporality for each in metrics if each.HasField("sum")} == {2 if temporality else 1}


@pytest.mark.timeout(900)
def test_each_metric_has_a_valid_name_in_each_target(tmp_path, server, gateway, monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    for each in (f"file:{tmp_path}/metrics.prom", gateway.url, "otel"):
        publish(each, [Measurement(name, 1, LABELS) for name in METRICS])
    assert len(values_in((tmp_path / "metrics.prom").read_text())) == len(METRICS)
    assert len(values_in(gateway.text())) == len(METRICS)
    assert len(server.counts()) == len(METRICS)
    assert caplog.text == ""


@pytest.mark.parametrize("text", ["file:/canary/metrics.prom", "http://127.0.0.1:1/canary"])
def test_failure_is_one_warning_without_the_address(text, caplog):
    for _ in range(2):
        publish(text, measured())
    [record] = caplog.records
    assert (record.name, record.levelname) == ("spark_cas", "WARNING")
    assert "canary" not in caplog.text


def test_error_of_a_pushgateway_is_a_warning(server, caplog, monkeypatch):
    monkeypatch.setattr(server, "text", lambda: "broken {")
    publish(server.url, measured())
    assert len(caplog.records) == 1


@pytest.mark.timeout(900)
def test_group_with_fewer_labels_pushes_no_series_of_another(gateway, caplog):
    """A query has the label job, and its writes have the same job, a log and a topic."""
    lag = Measurement("query.maxOffsetsBehindLatest", 7, {"job": LABELS["job"], "topic": "a"})
    other = Measurement("query.maxOffsetsBehindLatest", 8, {"job": LABELS["job"], "topic": "b"})
    for _ in range(2):
        publish(gateway.url, measured()[:2])
        publish(gateway.url, [lag, other])
    assert caplog.text == ""
    assert values_in(gateway.text(), topic="a")["spark_cas_query_maxOffsetsBehindLatest"] == 7
    assert values_in(gateway.text(), **LABELS)["spark_cas_rows_total"] == 10


def test_server_that_answers_slowly_delays_no_later_write(server, monkeypatch, caplog, set_timing):
    set_timing(best_effort=0.05)
    calls: list[None] = []

    def slow():
        calls.append(None)
        time.sleep(3)
        return ""

    monkeypatch.setattr(server, "text", slow)
    began = time.monotonic()
    for _ in range(5):
        publish(server.url, measured())
    assert time.monotonic() - began < 2
    assert (len(caplog.records), len(calls)) == (1, 1)


def test_missing_library_is_a_warning_that_names_the_extra(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    publish(f"file:{tmp_path}/metrics.prom", measured())
    assert "spark-cas[metrics]" in caplog.text


def test_file_on_windows_is_a_warning_that_names_other_targets(tmp_path, caplog, monkeypatch):
    """Windows has no module fcntl."""
    monkeypatch.setitem(__import__("sys").modules, "fcntl", None)
    publish(f"file:{tmp_path}/metrics.prom", measured())
    assert ("Linux or macOS" in caplog.text, "Install" in caplog.text) == (True, False)


def test_lock_that_another_process_holds_does_not_block_a_write(tmp_path, caplog, set_timing):
    set_timing(best_effort=0.01)
    file = tmp_path / "metrics.prom"
    with (tmp_path / "metrics.prom.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        publish(f"file:{file}", measured())
    assert len(caplog.records) == 1
    assert not file.exists()
    publish(f"file:{file}", measured())
    assert file.exists()
