"""Send events of loads, writes and micro-batches by OpenLineage.

The library is optional, and sends events if it is configured. They have no public option.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from spark_cas.core import __version__
from spark_cas.core.input_list import InputFile
from spark_cas.log import timing
from spark_cas.log.deadline import call_within

_LOG = logging.getLogger("spark_cas")
_MOST_FILES = 1000
"""Maximum number of files in an event. Of a larger input, the event names the folders."""
_PRODUCER = f"urn:spark-cas:{__version__}"

_failed: dict[str, float] = {}
"""The time before which this process sends no event of a write, under the key `_PRODUCER`."""

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
