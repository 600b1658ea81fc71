"""OpenLineage events of a bulk load, if openlineage-python is installed and configured. It has no own option."""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from rich.console import Console

from spark_cas import __version__
from spark_cas.core.input_list import InputFile
from spark_cas.log import timing
from spark_cas.log.deadline import call_within
from spark_cas.programs.errors import ExitCode
from spark_cas.programs.input.recorded_list import ListedInput
from spark_cas.programs.load_report import LoadReport
from spark_cas.programs.program import print_line

_MOST_FILES = 1000
"""Maximum number of files in an event. Of a larger input, the event names the folders."""
_PRODUCER = f"urn:spark-cas:{__version__}"


class Lineage:
    """Events of one run of a load. A failure to send one prints a warning, and stops further events."""

    def __init__(self, job: str, log: str, console: Console) -> None:
        """Prepare the events.

        Args:
            job: the name of the job
            log: the address of the log, without settings; empty if the arguments name no valid log
            console: the console for warnings
        """
        self._job = job
        self._log = log
        self._console = console
        self._run = str(uuid4())
        self._client: Any = None

    def start(self) -> None:
        """Send START, if the library is configured."""
        if not _may_be_configured():
            return
        if find_spec("openlineage") is None:
            self._warn("openlineage-python is missing: pip install 'spark-cas[lineage]'")
            return

        def send() -> None:
            self._client = _configured_client()
            if self._client is not None:
                self._emit("START", (), {}, {})

        self._try(send)

    def end(self, report: LoadReport, listed: ListedInput | None) -> None:
        """Send COMPLETE, FAIL or, for an interrupted run, ABORT, with the input and the number of appended rows."""
        if self._client is None:
            return
        states = {ExitCode.COMPLETE: "COMPLETE", ExitCode.INTERRUPTED: "ABORT"}

        def send() -> None:
            from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
            from openlineage.client.generated.output_statistics_output_dataset import (
                OutputStatisticsOutputDatasetFacet,
            )

            run, output = {}, {}
            if report.error:
                # A message may quote rows of the input. The code is safe.
                error = ErrorMessageRunFacet(report.error, "PYTHON", producer=_PRODUCER)
                run["errorMessage"] = error
            if report.appended_rows is not None:
                rows = OutputStatisticsOutputDatasetFacet(rowCount=report.appended_rows, producer=_PRODUCER)
                output["outputStatistics"] = rows
            self._emit(states.get(report.exit_code, "FAIL"), _datasets(listed.files if listed else ()), run, output)
            self._client.close(timing.current().longest_request)

        self._try(send)

    def _emit(
        self, state: str, inputs: Iterable[tuple[str, str]], run_facets: dict[str, Any], output_facets: dict[str, Any]
    ) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

        outputs = [OutputDataset(*dataset_of(self._log), outputFacets=output_facets)] if self._log else []
        event = RunEvent(
            eventType=RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            producer=_PRODUCER,
            run=Run(self._run, facets=run_facets),
            job=Job(os.environ.get("OPENLINEAGE_NAMESPACE", "default"), self._job),
            inputs=[InputDataset(*each) for each in inputs],
            outputs=outputs,
        )
        self._client.emit(event)

    def _try(self, send: Callable[[], None]) -> None:
        try:
            # The client retries for longer than its timeout.
            call_within(timing.current().longest_request, send)
        except Exception as error:  # noqa: BLE001 - lineage must not fail a load
            self._client = None
            # The text of an error may have the address of the server with a password.
            self._warn(f"an event of OpenLineage was not sent: {type(error).__name__}. The load does not need it.")

    def _warn(self, text: str) -> None:
        print_line(self._console, f"warning: {text}", "yellow")


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
