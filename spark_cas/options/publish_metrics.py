"""Publish the metrics of writes to a text file for Prometheus, a Pushgateway, or OpenTelemetry.

Spark commits each write in one of several processes, which it may end afterwards. So a target adds the counts of a
write to those that the file or the Pushgateway already has. All libraries load only for a write or listener that
needs them.
"""

import logging
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spark_cas.log import timing
from spark_cas.log.deadline import Wait, call_within
from spark_cas.options.table import METRICS_FILE, OTEL

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client.core import Metric

_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"

_LOG = logging.getLogger("spark_cas")
_failed: dict[str, float] = {}
"""The targets of this process that a warning has named, and the time before which a server is not tried again."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The definition of a metric."""

    unit: str
    """The unit, in the notation of OpenTelemetry."""
    doc: str
    adds: bool = True
    """Whether it is a counter. If not, it is a gauge."""


METRICS: Mapping[str, Kind] = {
    "writes": Kind("{write}", "Batch writes and micro-batches, also failed ones"),
    "failures": Kind("{write}", "Writes that failed"),
    "rows": Kind("{row}", "Appended rows"),
    "bytes": Kind("By", "Size of the appended rows before compression"),
    "chunks": Kind("{chunk}", "Appended chunks"),
    "conflicts": Kind("{write}", "Writes that were rejected with CONFLICT"),
    "retries": Kind("{attempt}", "Repeated append attempts"),
    "seconds": Kind("s", "Duration of the phases of a write: plan, append, commit"),
    "query.numInputRows": Kind("{row}", "Records that a query read"),
    "query.seconds": Kind("s", "Duration of the phases of a micro-batch, as Spark names them"),
    "query.minOffsetsBehindLatest": Kind("{record}", "Lag in offsets of the least delayed partition", adds=False),
    "query.maxOffsetsBehindLatest": Kind("{record}", "Lag in offsets of the most delayed partition", adds=False),
    "query.avgOffsetsBehindLatest": Kind("{record}", "Lag in offsets, the mean of all partitions", adds=False),
}
"""All metrics by name. In Prometheus, ``rows`` is ``spark_cas_rows_total``; in OpenTelemetry, ``spark_cas.rows``."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """An amount to add to a counter, or the new value of a gauge."""

    name: str
    """A name in `METRICS`."""
    value: float
    labels: Mapping[str, str]


def publish(target: str, measurements: Sequence[Measurement]) -> None:
    """Publish measurements to a target of `spark_cas.options.table.metrics_target`.

    This never raises an error. The first one is logged as a warning. A Pushgateway groups the measurements by the
    labels that all of them share.
    """
    if time.monotonic() < _failed.get(target, -math.inf):
        return
    try:
        # The libraries limit each socket operation, but not the whole call.
        call_within(2 * _seconds(), lambda: _publish(target, measurements))
    except Exception as error:  # noqa: BLE001 - metrics never fail a write
        if target not in _failed:
            _LOG.warning("metrics were not published to the target of option metrics: %s", _reason(error))
        pause = 0 if urlsplit(target).scheme == METRICS_FILE else timing.current().cached_age
        _failed[target] = time.monotonic() + pause


def _publish(target: str, measurements: Sequence[Measurement]) -> None:
    parts = urlsplit(target)
    if target == OTEL:
        _record(measurements)
    elif parts.scheme == METRICS_FILE:
        _write(Path(parts.path), measurements)
    else:
        _push(target, measurements)


def _seconds() -> float:
    """Return the longest wait for a lock, a Pushgateway or a collector."""
    return 4 * timing.current().best_effort


def _reason(error: Exception) -> str:
    """Return the reason without the text of the error, which may contain the target."""
    if isinstance(error, ImportError) and error.name == "fcntl":
        return "a file needs Linux or macOS. Use a Pushgateway or otel"
    if isinstance(error, ImportError):
        return f"package {error.name} is missing. Install spark-cas[metrics] where Spark's driver runs"
    cause = getattr(error, "reason", None)
    cause = cause if isinstance(cause, OSError) else error
    detail = getattr(cause, "strerror", None) or getattr(cause, "code", "")
    return f"{type(cause).__name__} {detail}".strip()


def _write(path: Path, measurements: Iterable[Measurement]) -> None:
    """Update a file for the textfile collector of the node exporter, which never sees a part of it."""
    from prometheus_client import write_to_textfile
    from prometheus_client.parser import text_string_to_metric_families

    with _locked(path.with_name(f"{path.name}.lock")):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        families = _updated(text_string_to_metric_families(text), measurements)
        write_to_textfile(str(path), _Families(families))


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock in the block, against other processes that update the same metrics."""
    import fcntl  # Windows lacks it

    wait = Wait(_seconds(), "waiting for the lock of the metrics file")
    with file.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait.again("another process updates it"):
                    raise
        yield


def _push(url: str, measurements: Sequence[Measurement]) -> None:
    """Update the metrics of a group in a Pushgateway. Its labels are those that all measurements share."""
    from urllib.request import urlopen

    from prometheus_client import pushadd_to_gateway
    from prometheus_client.parser import text_string_to_metric_families

    own_labels = (each.labels.items() for each in measurements)
    group = dict(sorted(set(measurements[0].labels.items()).intersection(*own_labels)))
    with urlopen(f"{url.rstrip('/')}/metrics", timeout=_seconds()) as response:  # noqa: S310 - the option has checked the scheme
        existing = list(text_string_to_metric_families(response.read().decode()))
    own = {_prometheus_name(each.name) for each in measurements}
    # Other groups may have the same labels and more. A Pushgateway rejects a series that is in two groups.
    existing = [family for family in existing if family.name in own]
    for family in existing:
        family.samples = [each for each in family.samples if group.items() <= each.labels.items()]
        for each in family.samples:
            each.labels.pop("instance", None)  # the Pushgateway adds an empty one
    families = _updated(existing, measurements)
    key = {name: value for name, value in group.items() if name != "job"}
    pushadd_to_gateway(url, group.get("job", "spark_cas"), _Families(families), key, _seconds())


def _prometheus_name(name: str) -> str:
    return f"spark_cas_{name.replace('.', '_')}"


class _Families:
    """A collector of given metrics."""

    def __init__(self, families: "Iterable[Metric]") -> None:
        self._families = [each for each in families if each.samples]

    def collect(self) -> "Iterable[Metric]":
        return self._families


def _updated(existing: "Iterable[Metric]", measurements: Iterable[Measurement]) -> "list[Metric]":
    """Return the metrics with these measurements."""
    from prometheus_client.core import Metric

    families = {each.name: each for each in existing}
    for each in measurements:
        kind = METRICS[each.name]
        name = _prometheus_name(each.name)
        family = families.setdefault(name, Metric(name, kind.doc, "counter" if kind.adds else "gauge"))
        labels, value = dict(each.labels), each.value
        before = [sample for sample in family.samples if sample.labels == labels]
        if kind.adds:
            value += sum(sample.value for sample in before)
        family.samples = [sample for sample in family.samples if sample.labels != labels]
        family.add_sample(f"{name}_total" if kind.adds else name, labels, value)
    return list(families.values())


def _record(measurements: Iterable[Measurement]) -> None:
    """Record measurements with the provider of this process, or export them to the collector of the environment."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider

    provider = metrics.get_meter_provider()
    if isinstance(provider, MeterProvider):
        _add(provider, measurements)
    else:
        _export(measurements)


def _export(measurements: Iterable[Measurement]) -> None:
    """Send measurements to a collector by OTLP. Raises OSError if it does not accept them."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import Counter, MeterProvider
    from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader, MetricExportResult

    # Each export counts from 0, so by default a counter is sent as a difference.
    cumulative = os.environ.get(_TEMPORALITY, "").strip().upper() == "CUMULATIVE"
    temporality = AggregationTemporality.CUMULATIVE if cumulative else AggregationTemporality.DELTA
    reader = InMemoryMetricReader({Counter: temporality})
    provider = MeterProvider([reader], shutdown_on_exit=False)
    _add(provider, measurements)
    data = reader.get_metrics_data()
    if data is not None and OTLPMetricExporter(timeout=_seconds()).export(data) is not MetricExportResult.SUCCESS:
        raise ConnectionError(0, "the collector did not accept them")


def _add(provider: "MeterProvider", measurements: Iterable[Measurement]) -> None:
    meter = provider.get_meter("spark_cas")
    for each in measurements:
        kind = METRICS[each.name]
        # OpenTelemetry ignores the case of names.
        name = "spark_cas." + re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", each.name)
        if kind.adds:
            meter.create_counter(name, kind.unit, kind.doc).add(each.value, dict(each.labels))
        else:
            meter.create_gauge(name, kind.unit, kind.doc).set(each.value, dict(each.labels))
