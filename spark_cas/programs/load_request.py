"""What a bulk load was asked for: plain values, checked before Spark starts."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spark_cas.core.guarantee import REQUIRED
from spark_cas.programs.exit_codes import UsageError

if TYPE_CHECKING:
    from spark_cas.options.parse import WriteOptions

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""By suffix; a compressed file has another one behind it."""
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
    """Columns and types of csv or json input, in SQL; None takes csv as text and looks through json."""
    read_options: tuple[tuple[str, str], ...] = ()
    log_options: tuple[tuple[str, str], ...] = ()
    """Options of the write under their names in docs/options.md, but for path and job. They may be secret."""
    verify: bool = False
    job_is_fresh: bool = False
    """No job was named, so a re-run will not be recognised."""

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
    """The format that the suffixes of all inputs name; UsageError when they do not agree or name none."""
    found = {_by_suffix(each) for each in inputs}
    if len(found) == 1 and (only := found.pop()) is not None:
        return only
    raise UsageError(
        f"the format of the input cannot be told from its name: expected the suffix {', '.join(FORMATS)}, the "
        f"same for all. Give --format."
    )


def _by_suffix(path: str) -> str | None:
    try:
        parsed = urlsplit(path)
    except ValueError:
        return None
    name = PurePosixPath(parsed.path if len(parsed.scheme) > 1 else path)
    suffixes = [each.lower() for each in name.suffixes if each.lower() not in _COMPRESSED]
    return FORMATS.get(suffixes[-1]) if suffixes else None
