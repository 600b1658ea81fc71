"""The request of a bulk load: plain values, checked before Spark starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.input_list import InputFile, InputList, digested_arguments
from spark_cas.programs.exit_codes import UsageError

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
"""Format by suffix, ignoring that of a compression."""
ALL_FORMATS = (*sorted(set(FORMATS.values())), "binary")
QUERY = "query"
"""The format of a load without files."""
ROWS_ARE_VALUES = frozenset({"text", "binary"})
"""Formats whose rows have a column ``value``, which is the default of ``--value``."""
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One bulk load."""

    inputs: tuple[str, ...]
    format: str
    log: str
    """Its address, as `spark_cas.log.open.parse_address` reads it."""
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
    """A SQL query whose rows are loaded in place of files."""
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
        """The files together with the arguments that make rows of them, for the registry."""
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
        """All options of the write, as `route` and Spark's writer take them.

        A job that nobody named is left out where the write may have no plan: nothing then has to show that it is new.
        """
        options = {**dict(self.log_options), "path": self.log}
        if self.job_is_fresh and _parsed(options).idempotence != REQUIRED:
            return options
        return {**options, "job": self.job}

    def parse(self) -> "WriteOptions":
        """The options of the write as values; OptionError for any that is wrong. Needs no Spark."""
        return _parsed(self.write_options())

    def __repr__(self) -> str:
        return f"LoadRequest(job={self.job!r}, inputs={self.inputs!r})"


def _parsed(options: dict[str, str]) -> "WriteOptions":
    from spark_cas.options.parse import parse_write

    return parse_write(options)


def guess_format(inputs: tuple[str, ...]) -> str:
    """Return the format that the suffixes of all inputs name; UsageError if they differ or name none."""
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
