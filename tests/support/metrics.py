"""A Pushgateway and an OpenTelemetry collector on 127.0.0.1, and the values in a text file of Prometheus."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import unquote_plus

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families


def values_in(text: str, **labels: str) -> dict[str, float]:
    """Return the values in a text of Prometheus, by name and phase, of the samples with these labels."""
    return {
        " ".join(filter(None, (each.name, each.labels.get("phase")))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if labels.items() <= each.labels.items()
    }


class Server(ThreadingHTTPServer):
    """Stores groups of metrics as a Pushgateway does, and requests of OTLP exporters."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = Lock()
        self.groups: dict[tuple[tuple[str, str], ...], dict[str, Metric]] = {}
        self.pushed: list[str] = []
        """The text of each push."""
        self.exported: list[ExportMetricsServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def text(self) -> str:
        """Return all metrics as a Pushgateway exposes them, with the labels of the group and an empty instance."""
        families: dict[str, Metric] = {}
        for group, metrics in self.groups.items():
            for name, metric in metrics.items():
                family = families.setdefault(name, Metric(name, metric.documentation, metric.type))
                for each in metric.samples:
                    family.add_sample(each.name, {"instance": "", **each.labels, **dict(group)}, each.value)
        registry = CollectorRegistry()
        registry.register(_Collector(list(families.values())))
        return generate_latest(registry).decode()

    def has_duplicates(self) -> bool:
        """Return whether one series is in two groups, which a Pushgateway rejects."""
        series = [
            (each.name, frozenset({**each.labels, **dict(group)}.items()))
            for group, metrics in self.groups.items()
            for metric in metrics.values()
            for each in metric.samples
        ]
        return len(set(series)) < len(series)

    def counts(self) -> dict[str, float]:
        """Return the values that were exported by OTLP, by name and phase. Differences are added."""
        result: dict[str, float] = {}
        for request in self.exported:
            for resource in request.resource_metrics:
                for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                    for point in [*metric.sum.data_points, *metric.gauge.data_points]:
                        labels = {each.key: each.value.string_value for each in point.attributes}
                        name = " ".join(filter(None, (metric.name, labels.get("phase"))))
                        value = point.as_double or point.as_int
                        result[name] = value + (0 if metric.HasField("gauge") else result.get(name, 0))
        return result


class _Collector:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        with self.server.lock:
            body = self.server.text().encode()
        self._respond(200, body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            if self.path == "/v1/metrics":
                self.server.exported.append(ExportMetricsServiceRequest.FromString(_inflated(body, self.headers)))
            else:
                self.server.pushed.append(body.decode())
                pushed = {each.name: each for each in text_string_to_metric_families(body.decode())}
                group = _group(self.path)
                before = self.server.groups.get(group, {})
                self.server.groups[group] = before | pushed
                if self.server.has_duplicates():
                    self.server.groups[group] = before
                    self._respond(400, b"")
                    return
        self._respond(200, b"")

    def _respond(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _inflated(body: bytes, headers) -> bytes:
    import gzip

    return gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body


def _group(path: str) -> tuple[tuple[str, str], ...]:
    """Return the labels in the path of a push: ``/metrics/job/name/label@base64/value``."""
    _, metrics, *parts = path.split("/")
    assert metrics == "metrics", path
    result = []
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        plain, _, encoding = name.partition("@")
        padded = value + "=" * (-len(value) % 4)
        result.append((plain, base64.urlsafe_b64decode(padded).decode() if encoding else unquote_plus(value)))
    assert all(value for name, value in result if name == "job"), path
    return tuple(sorted(result))


@contextmanager
def metrics_server() -> Iterator[Server]:
    """Run a server in the block."""
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
