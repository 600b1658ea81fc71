"""Input list of a job: recorded before its first row, and compared with the list of each later run."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from spark_cas.core.errors import FormatError, InputChangedError, LogNotFoundError, StorageError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.input_list import InputFile, InputList, RecordedInput, different_file, first_difference
from spark_cas.core.plan import input_entry
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import require_same_input
from spark_cas.log.open import open_log
from spark_cas.programs.arguments import LoadRequest
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import list_input
from spark_cas.programs.program import print_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_cas.options.request import WriteRequest

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ListedInput:
    """The files of a load, and their list as the registry records it."""

    files: tuple[InputFile, ...]
    list: InputList
    skipped: tuple[str, ...]

    def totals(self, rows: int | None) -> dict[str, object]:
        """Return the totals for the report: files, bytes before decompression, skipped hidden names, and rows.

        The rows are those in the footers of Parquet or ORC files; None if not known.
        """
        return {"files": len(self.files), "bytes": self.list.bytes, "skipped": self.skipped, "rows": rows}


def listed_input(request: LoadRequest, write: "WriteRequest", spark: "SparkSession", console: Console) -> ListedInput:
    """List the input, and compare it with the list that an earlier run of the job recorded.

    Raises:
        UsageError: if there is no file
        InputChangedError: if the lists differ
    """
    result = _list(request, spark)
    if result.skipped:
        names = ", ".join(result.skipped[:_NAMES_SHOWN]) + (", ..." if len(result.skipped) > _NAMES_SHOWN else "")
        print_line(console, f"note: {len(result.skipped)} hidden names are skipped: {names}", "yellow")
    if not result.files and request.query is None and not request.allow_empty:
        raise UsageError("--input has no files. Nothing was appended. Add --allow-empty if this is right.")
    if write.job is not None:
        with open_log(write.spec) as log:
            _require_same(log, write.job, result.list)
    return result


def require_same_list(
    request: LoadRequest, write: "WriteRequest", start_session: "Callable[[], SparkSession]", console: Console
) -> ListedInput | None:
    """Check that a complete job began with the input of this request. Return the input; None if no list is recorded.

    A Spark session is started only if the input is not local, or if it differs.

    Raises:
        InputChangedError: if the lists differ
        UsageError: if the input is invalid
    """
    if write.job is None:
        return None
    with open_log(write.spec) as log:
        plan = log.plan(write.job)
    if plan is None or not plan.input:
        return None
    with suppress(UsageError):
        result = _list(request, None)
        if result.list.digest == plan.input:
            return result
    return listed_input(request, write, start_session(), console)


def require_unchanged(source: ListedInput, request: LoadRequest, spark: "SparkSession") -> None:
    """Check that the files are still as they were listed before Spark read them. Raises InputChangedError.

    New files do not matter: the load has not read them, and may have written them.
    """
    read = {each.path for each in source.files}
    try:
        files = tuple(each for each in list_input(request.inputs, spark).files if each.path in read)
        difference = "" if files == source.files else different_file(source.files, files)
    except UsageError as error:
        difference = str(error)
    if difference:
        raise InputChangedError(
            f"the input changed during the load: {difference}. The rows of the job in the log stay, and may be those "
            f"of the old or of the new files. Compare the log and the input with verify_log.py."
        )


def record_list(write: "WriteRequest", job: str, current: InputList) -> None:
    """Record the input list of a job. The plan that follows refers to it by its digest."""
    try:
        with open_log(write.spec) as log:
            log.put_entry("input", input_entry(job, current.digest), current.to_json())
    except StorageError:
        # Without a registry, the load continues with a lower guarantee and without a plan.
        if write.idempotence == REQUIRED:
            raise


def _list(request: LoadRequest, spark: "SparkSession | None") -> ListedInput:
    listing = list_input(request.inputs, spark)
    return ListedInput(listing.files, request.listed(listing.files), listing.skipped)


def _require_same(log: Backend, job: str, current: InputList) -> None:
    """Check that the job began with this list. Raises InputChangedError with the first difference."""
    try:
        plan = log.plan(job)
    except LogNotFoundError:
        return
    if plan is None or not plan.input or plan.input == current.digest:
        return
    text = log.entry("input", input_entry(job, plan.input))
    if text is None:
        require_same_input(plan, current.digest)
        return
    try:
        recorded = RecordedInput.from_json(text)
    except (KeyError, TypeError, ValueError):
        raise FormatError(
            f"the input list of job {job!r} in the registry is not in the format of this version. Check whether a "
            f"newer version of spark_cas wrote it."
        ) from None
    require_same_input(plan, current.digest, first_difference(recorded, current, plan.pinned_at_ms))
