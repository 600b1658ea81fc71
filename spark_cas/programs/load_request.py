"""Request of a bulk load: plain values that are validated before Spark starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.input_list import InputFile, InputList, digested_arguments
from spark_cas.programs.errors import UsageError

if TYPE_CHECKING:
    from spark_cas.options.parse import WriteOptions

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "text",
}
"""Format by file suffix. A compression suffix is ignored."""
ALL_FORMATS = (*sorted(set(FORMATS.values())), "binary")
QUERY = "query"
"""The format of a load without files."""
ROWS_ARE_VALUES = frozenset({"text", "binary"})
"""Formats whose rows have a column ``value``, which is the default of ``--value``."""
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Arguments of a bulk load."""

    inputs: tuple[str, ...]
    format: str
    log: str
    """Address of the log, in the format of `spark_cas.log.open.parse_address`."""
    job: str
    key: str | None
    """SQL expression; None loads rows without a key."""
    value: str | None
    """SQL expression; None takes the whole row as JSON."""
    order_by: tuple[str, ...] = ()
    """SQL expressions, each of which may end in ASC or DESC."""
    schema: str | None = None
    """Columns and types of csv or json input, in SQL; None reads csv columns as strings and infers those of json."""
    read_options: tuple[tuple[str, str], ...] = ()
    log_options: tuple[tuple[str, str], ...] = ()
    """Options of the write under their names in docs/options.md, except path and job. They may be secret."""
    verify: bool = False
    job_is_fresh: bool = False
    """The caller named no job, so no later run can resume this one."""
    query: str | None = None
    """A SQL query whose rows are loaded instead of files."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name and SQL expression of each header of a record."""
    timestamp: str | None = None
    """SQL expression of each record's timestamp; None lets the log set it."""
    tombstones: bool = False
    """Whether a row may have a null value, which deletes its key."""
    allow_empty: bool = False
    """Whether input without rows completes the job."""

    @property
    def value_expression(self) -> str | None:
        """SQL expression of the value; None for the whole row as JSON."""
        return "value" if self.value is None and self.format in ROWS_ARE_VALUES else self.value

    def listed(self, files: Sequence[InputFile]) -> InputList:
        """Return the files and the arguments that define the rows, for the registry."""
        arguments = {
            "--format": self.format,
            "--header": self.headers,
            "--key": self.key,
            "--order-by": self.order_by,
            "--query": self.query,
            "--read-option": sorted(self.read_options),
            "--schema": self.schema,
            "--timestamp": self.timestamp,
            "--value": self.value,
        }
        return InputList(tuple(files), digested_arguments(arguments))

    def write_options(self) -> dict[str, str]:
        """Return all options of the write for `route` and Spark's writer.

        If the caller named no job and the write may have no plan, the options omit the generated name. Then no check
        that the job is new is necessary.
        """
        options = {**dict(self.log_options), "path": self.log}
        if self.job_is_fresh and _parsed(options).idempotence != REQUIRED:
            return options
        return {**options, "job": self.job}

    def parse(self) -> "WriteOptions":
        """Return the parsed options of the write. Works without Spark. Raises OptionError if one is invalid."""
        return _parsed(self.write_options())

    def __repr__(self) -> str:
        return f"LoadRequest(job={self.job!r}, inputs={self.inputs!r})"


def _parsed(options: dict[str, str]) -> "WriteOptions":
    from spark_cas.options.parse import parse_write

    return parse_write(options)


def guess_format(inputs: tuple[str, ...]) -> str:
    """Return the format that the suffixes of all inputs indicate. Raises UsageError if they do not agree."""
    found = {_by_suffix(each) for each in inputs}
    if len(found) == 1 and (only := found.pop()) is not None:
        return only
    raise UsageError(
        f"the names of the input do not show one format: expected one of the suffixes {', '.join(FORMATS)} for all "
        f"of them. Add --format."
    )


def _by_suffix(path: str) -> str | None:
    try:
        parsed = urlsplit(path)
    except ValueError:
        return None
    name = PurePosixPath(parsed.path if len(parsed.scheme) > 1 else path)
    suffixes = [each.lower() for each in name.suffixes if each.lower() not in _COMPRESSED]
    return FORMATS.get(suffixes[-1]) if suffixes else None
