"""Reports of writes to other systems: events of OpenLineage, and metrics.

A target of metrics is a text file for Prometheus, a Pushgateway, or OpenTelemetry. Spark commits each write in one of
several processes, which it may end afterwards. So a target adds the counts of a write to those that the file or the
Pushgateway already has.

The library of OpenLineage is optional, and sends events if it is configured. They have no public option. All
libraries load only for a write or listener that needs them.
"""

import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from spark_cas.core import __version__
from spark_cas.core.input_list import InputFile
from spark_cas.log import timing
from spark_cas.log.deadline import Wait, call_within
from spark_cas.options.table import METRICS_FILE, OTEL

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client.core import Metric

_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"

_LOG = logging.getLogger("spark_cas")
_failed: dict[str, float] = {}
"""The targets of this process that a warning has named, and the time before which a server is not tried again.

The key `_PRODUCER` has the time before which this process sends no event of a write."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The definition of a metric."""

    unit: str
    """The unit, in the notation of OpenTelemetry."""
    doc: str
    adds: bool = True
    """Whether it is a counter. If not, it is a gauge."""


METRICS: Mapping[str, Kind] = {
    "writes": Kind("{write}", "Batch writes and micro-batches, also rejected ones"),
    "rows": Kind("{row}", "Appended rows"),
    "bytes": Kind("By", "Size of the appended rows before compression"),
    "chunks": Kind("{chunk}", "Appended chunks"),
    "conflicts": Kind("{write}", "Writes that were rejected with CONFLICT"),
    "retries": Kind("{attempt}", "Repeated append attempts"),
    "seconds": Kind("s", "Duration of the phases of a write: plan, append, commit"),
    "query.numInputRows": Kind("{row}", "Records that a query read"),
    "query.seconds": Kind("s", "Duration of the phases of a micro-batch, as Spark names them"),
    "query.minOffsetsBehindLatest": Kind("{record}", "Lag in records of the least delayed partition", adds=False),
    "query.maxOffsetsBehindLatest": Kind("{record}", "Lag in records of the most delayed partition", adds=False),
    "query.avgOffsetsBehindLatest": Kind("{record}", "Lag in records, the mean of all partitions", adds=False),
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


_MOST_FILES = 1000
"""Maximum number of files in an event. Of a larger input, the event names the folders."""
_PRODUCER = f"urn:spark-cas:{__version__}"

_MISSING = "openlineage-python is missing: pip install 'spark-cas[lineage]'"


class Lineage:
    """Events of one run of a job. A failure to send one prints a warning, and stops further events."""

    def __init__(self, job: str, log: str, warn: Callable[[str], None], *, processing: str = "BATCH") -> None:
        """Prepare the events. The address of the log is without settings, and empty if it is not valid."""
        self._job = job
        self._log = log
        self._warn = warn
        self._processing = processing
        self._run = str(uuid4())
        self._client: Any = None

    def start(self) -> None:
        """Send START, if the library is configured."""
        if not _may_be_configured():
            return
        if find_spec("openlineage") is None:
            self._warn(_MISSING)
        elif not self._try(lambda: self._start(None)):
            self._client = None

    def end(
        self, state: str, *, error: str | None = None, rows: int | None = None, files: Sequence[InputFile] = ()
    ) -> None:
        """Send the last event, if `start` sent one.

        The state is ``COMPLETE``, ``FAIL`` or, for an interrupted run, ``ABORT``. The error is only its kind, because
        a message could quote rows of the input.
        """
        if self._client is not None:
            self._try(lambda: self._emit(state, None, error, rows, files))

    def send_both(self, state: str, times_ms: tuple[int, int], *, error: str, rows: int) -> bool:
        """Send START and the last event of a run that has ended. Return False if that failed.

        It takes at most two seconds. Both events are sent in one thread, so a server that is slower gets both.
        ``state`` is ``COMPLETE`` or ``FAIL``. The other arguments are those of `send_run`.
        """

        def send() -> None:
            self._start(times_ms[0])
            if self._client is not None:
                self._emit(state, times_ms[1], error, rows)

        return self._try(send, 4 * timing.current().best_effort)

    def _start(self, at_ms: int | None) -> None:
        self._client = _configured_client()
        if self._client is not None:
            self._emit("START", at_ms)

    def _emit(
        self,
        state: str,
        at_ms: int | None,
        error: str | None = None,
        rows: int | None = None,
        files: Sequence[InputFile] = (),
    ) -> None:
        """Send an event, and close the client after the last one."""
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
        from openlineage.client.generated.job_type_job import JobTypeJobFacet
        from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet

        run: dict[str, Any] = {}
        output: dict[str, Any] = {}
        if error:
            run["errorMessage"] = ErrorMessageRunFacet(error, "PYTHON", producer=_PRODUCER)
        if rows is not None:
            output["outputStatistics"] = OutputStatisticsOutputDatasetFacet(rowCount=rows, producer=_PRODUCER)
        kind = JobTypeJobFacet(self._processing, "SPARK_CAS", producer=_PRODUCER)
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "default")
        at = datetime.now(UTC) if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
        event = RunEvent(
            eventType=RunState[state],
            eventTime=at.isoformat(timespec="milliseconds"),
            producer=_PRODUCER,
            run=Run(self._run, facets=run),
            job=Job(namespace, self._job, facets={"jobType": kind}),
            inputs=[InputDataset(*each) for each in _datasets(files)],
            outputs=[OutputDataset(*dataset_of(self._log), outputFacets=output)] if self._log else [],
        )
        self._client.emit(event)
        if state != "START":
            self._client.close(timing.current().longest_request)

    def _try(self, send: Callable[[], None], seconds: float | None = None) -> bool:
        try:
            # The client retries for longer than its timeout.
            call_within(timing.current().longest_request if seconds is None else seconds, send)
        except Exception as error:  # noqa: BLE001 - lineage must not fail a write
            # The text of an error may have the address of the server with a password.
            self._warn(f"an event of OpenLineage was not sent: {type(error).__name__}. The write does not need it.")
            return False
        return True


def send_run(
    job: str | None, log: str, times_ms: tuple[int, int], *, rows: int, error: str, is_micro_batch: bool
) -> None:
    """Send the events of a finished write or micro-batch: START, then COMPLETE or FAIL.

    Each micro-batch is a run, as in OpenLineage's integration with Spark. START is sent at the end too, because Spark
    does not report to the writer if the query of the rows fails, and the run would never end. Then no event is sent.
    After a failure, the writes of this process send no event for a minute.

    Args:
        job: The name of the job; None for an event that names the log instead.
        log: The address of the log, without settings.
        times_ms: The begin and end of the write, milliseconds since 1970.
        rows: The number of appended rows.
        error: The kind of the error; empty if the write is complete.
        is_micro_batch: Whether the write is a micro-batch.
    """
    if time.monotonic() < _failed.get(_PRODUCER, -math.inf) or not _may_be_configured():
        return
    if find_spec("openlineage") is None:
        _LOG.warning(_MISSING)
        _failed[_PRODUCER] = math.inf
        return
    processing = "STREAMING" if is_micro_batch else "BATCH"
    run = Lineage(job or f"append to {dataset_of(log)[1]}", log, _LOG.warning, processing=processing)
    if not run.send_both("FAIL" if error else "COMPLETE", times_ms, error=error, rows=rows):
        _failed[_PRODUCER] = time.monotonic() + timing.current().cached_age


def dataset_of(address: str) -> tuple[str, str]:
    """Return the namespace and name of a dataset by OpenLineage's naming rules.

    For example, ``kafka://host:9092`` and the topic, ``file`` and the path, or ``s3://bucket`` and the key.
    """
    scheme, _, after = address.partition(":")
    if scheme == "file":
        return "file", after.removeprefix("//") if after.startswith("///") else after
    host, _, path = after.removeprefix("//").partition("/")
    if scheme == "kafka":
        return f"kafka://{host.partition(',')[0]}", path
    if scheme == "hdfs":
        return f"hdfs://{host}", f"/{path}"
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{host}", path


def _datasets(files: Sequence[InputFile]) -> Iterable[tuple[str, str]]:
    paths = (each.path for each in files)
    if len(files) > _MOST_FILES:
        paths = (path.rpartition("/")[0] for path in paths)
    return dict.fromkeys(map(dataset_of, paths))


def _configured_client() -> Any:  # noqa: ANN401 - the library is optional
    """Return a client; None if the library is not configured. It would then print the events."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.noop import NoopConfig, NoopTransport

    config = OpenLineageClient(transport=NoopTransport(NoopConfig())).config
    is_configured = os.environ.get("OPENLINEAGE_URL") or (config.transport or {}).get("type")
    return OpenLineageClient() if is_configured else None


def _may_be_configured() -> bool:
    """Return whether a variable or a file configures the library. To import the library takes half a second."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        return False
    # These functions of os.path raise no error, unlike those of pathlib.
    files = ("openlineage.yml", os.path.expanduser("~/.openlineage/openlineage.yml"))  # noqa: PTH111
    return any(name.startswith("OPENLINEAGE_") for name in os.environ) or any(map(os.path.isfile, files))
