"""Rows of a load that cannot be appended (``--bad-rows``): the reason of each, and the file or log that has them.

A log that has them is called the log for dead letters: `DeadLetters` is the write to it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from spark_cas.core.errors import ConditionalLogError, InputChangedError, LogNotFoundError, UnreadableInputError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.input_list import InputFile
from spark_cas.core.records import HEADERS, RECORD_OVERHEAD_BYTES
from spark_cas.log.backend import Backend
from spark_cas.log.open import AnySpec, open_log
from spark_cas.options import report_file
from spark_cas.options.parse import parse_load
from spark_cas.options.request import WriteRequest
from spark_cas.programs.errors import UsageError, plain_error
from spark_cas.programs.input.parts import BAD, FILE
from spark_cas.programs.load_report import rows_now

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SOURCE = "_input_source"
"""Column with the row of the input as text."""
MOST_ROWS_IN_FILE = 100_000
"""Maximum number of bad rows in a file, because the driver has them in memory."""
_RECORD = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Conditions of a log on each record."""

    record_bytes: int
    """The largest record in bytes, as `spark_cas.core.records.record_sizes` counts them."""
    keys_required: bool
    """Whether the log rejects records without a key."""


def row_limits(write: WriteRequest) -> RowLimits:
    """Return the limits of a log. For a log that does not exist yet, they are those with which it will be created.

    Raises ConditionalLogError if `preflight` of the log fails.
    """
    most = write.limits.max_bytes
    with open_log(write.spec) as log:
        try:
            log.layout_now()  # a preflight requires an existing log
            preflight = log.preflight(idempotence=write.idempotence)
        except LogNotFoundError:
            preflight = log.limits_when_created()
    return RowLimits(min(most, preflight.max_record_bytes or most), preflight.keys_required)


def has_microseconds(time: "Column") -> "Column":
    """Return whether a time has microseconds, which a log does not keep."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    return F.unix_micros(time.cast("timestamp")) % 1000 != 0


def reason_of(rows: "DataFrame", limits: RowLimits, *, tombstones: bool) -> "Column":
    """Return the reason code of a record that cannot be appended; null for other records.

    The records have the columns key and value, and maybe headers and timestamp. With ``tombstones``, a null value is
    allowed.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    def size_of(column: "Column") -> "Column":
        return F.coalesce(F.octet_length(column), F.lit(0))

    size = F.lit(RECORD_OVERHEAD_BYTES).cast("long") + size_of(F.col("key")) + size_of(F.col("value"))
    if "headers" in rows.columns:
        each = F.transform("headers", lambda header: size_of(header["key"]) + size_of(header["value"]))
        size += F.aggregate(each, F.lit(0), lambda total, number: total + number)
    conditions = [(size > limits.record_bytes, "TOO_LARGE")]
    if limits.keys_required:
        conditions.append((F.col("key").isNull(), "NULL_KEY"))
    if not tombstones:
        conditions.append((F.col("value").isNull(), "NULL_VALUE"))
    if "timestamp" in rows.columns:
        conditions.append((F.col("timestamp").isNull() | has_microseconds(F.col("timestamp")), "BAD_TIMESTAMP"))
    return F.coalesce(*(F.when(fails, F.lit(code)) for fails, code in conditions))


def bad_row(reason: "Column", number: str | None) -> "Column":
    """Return a record that cannot be appended as a JSON object, with the number of its row if a column has it."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    numbers = [] if number is None else [(F.col(number) + 1).alias("row")]
    return F.to_json(F.struct(*numbers, reason.alias("code"), F.col(SOURCE).alias("text")))


def write_bad_rows(bad: "DataFrame", files: Sequence[InputFile], file: str) -> int:
    """Write the bad rows to a file as lines of JSON, before the load appends the others. Return their number.

    The rows have the columns `BAD` and `FILE`, and further columns for their order. Raises UsageError if the file
    cannot be written, or if there are too many rows.
    """
    order = [each for each in bad.columns if each != BAD]
    sorted_rows = bad.repartition(1).sortWithinPartitions(*order, BAD).limit(MOST_ROWS_IN_FILE + 1)
    lines = [
        json.dumps({"file": files[row[FILE]].path, **json.loads(row[BAD])}) + "\n"
        for row in sorted_rows.toLocalIterator()
    ]
    try:
        report_file.put(file, "".join(lines[:MOST_ROWS_IN_FILE]))
    except OSError as error:
        raise UsageError(f"--bad-rows: the file cannot be written: {error}. Nothing was appended.") from error
    if len(lines) > MOST_ROWS_IN_FILE:
        raise UsageError(
            f"--bad-rows: the input has more than {MOST_ROWS_IN_FILE:,} bad rows, the limit of a file, which now has "
            f"the first of them. Nothing was appended. Correct the input or --schema, or name a log instead."
        )
    return len(lines)


def bad_records(bad: "DataFrame", files: Sequence[InputFile], job: str) -> "tuple[DataFrame, list[Column]]":
    """Return bad rows as records, and their order: the text as value, the place and the reason as headers.

    The rows have the columns that `write_bad_rows` requires. ``job`` is the job of the load.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    paths = [each.path for each in files]
    positions = [each for each in bad.columns if each != BAD]

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [json.loads(each) for each in batch.column(BAD).to_pylist()]
            values = [row.pop("text").encode() for row in rows]
            for row, index in zip(rows, batch.column(FILE).to_pylist(), strict=True):
                row.update(file=paths[index], job=job)
            headers = [
                [{"key": f"spark_cas.{name}", "value": str(value).encode()} for name, value in row.items()]
                for row in rows
            ]
            columns = [
                pa.nulls(len(rows), pa.binary()),
                pa.array(values, pa.binary()),
                pa.array(headers, HEADERS),
                *(batch.column(each) for each in positions),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["key", "value", "headers", *positions])

    types = (f"{each} {bad.schema[each].dataType.simpleString()}" for each in positions)
    return bad.mapInArrow(convert, ", ".join([_RECORD, *types])), [F.col(each) for each in positions]


_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_GUARANTEE = {"expectedOffsets": "none", "idempotence": REQUIRED, "atomic": "false"}
_ADDRESS = ("path", "kafka.bootstrap.servers", "topic")


def is_log(target: str | None) -> bool:
    """Return whether ``--bad-rows`` names a log: a URL or an existing folder. Any other path is a file."""
    return target is not None and (_URL.match(target) is not None or Path(target).is_dir())


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The write that appends the bad rows of a load to their own log."""

    options: dict[str, str] = field(repr=False)
    """Its options. They may be secret."""
    write: WriteRequest

    @property
    def job(self) -> str:
        """Its job. It is the same in each run of the load, so that the rows are appended once."""
        return self.options["job"]

    def require_usable(self, log: Backend) -> None:
        """Check that the bad rows can be appended, before the load reads a row. ``log`` is the log of the load.

        Raises:
            UsageError: if the address has no log, has the log of the load, or has a log that requires keys
            ConditionalLogError: if `preflight` fails
        """
        url = self.write.spec.url
        with naming(url), open_log(self.write.spec) as own:
            try:
                log_id = own.layout_now().log_id
            except LogNotFoundError as error:
                raise UsageError(
                    f"--bad-rows: there is no log at {url}. Nothing was appended. Check the address, or create the "
                    f"topic (the directory: spark_cas.open_log(address).create(1)) first."
                ) from error
            preflight = own.preflight(idempotence=REQUIRED)
        if preflight.keys_required:
            raise UsageError(
                f"--bad-rows: {url} is compacted, and bad rows have no key. Nothing was appended. Name another topic."
            )
        with suppress(LogNotFoundError):
            if log.has_id(log_id):
                raise UsageError(f"--bad-rows: {url} is the log of the load. Nothing was appended. Name another log.")

    def rows(self) -> int | None:
        """Return the number of bad rows in the log; None if it is not known, or the write is not complete."""
        rows = rows_now(self.write.spec, self.job)
        return rows.rows if rows is not None and rows.complete else None


def dead_letters_of(target: str | None, write: WriteRequest, job: str) -> DeadLetters | None:
    """Return the write of the bad rows of a load; None if they have no log.

    On the same brokers, or in the same bucket, it has the client settings of the load.

    ``target`` is the argument ``--bad-rows``. ``write`` and ``job`` are those of the load. Raises ConditionalLogError
    if the address is invalid, or the job name is too long.
    """
    if target is None or not is_log(target):
        return None
    own = {"path": target, "job": f"{job}.bad-rows", **_GUARANTEE}
    with naming():
        is_same = _server(parse_load(own).spec) == _server(write.spec)
        inherited = {key: value for key, value in write.reading if key == "conf" or (is_same and key not in _ADDRESS)}
        options = {**inherited, **own, "lineage": "false"}
        return DeadLetters(options, parse_load(options))


@contextmanager
def naming(url: str = "", job: str = "") -> Iterator[None]:
    """Add the URL of the log for bad rows to its errors, and the fix if the bad rows of ``job`` have changed.

    An error of the input is raised unchanged.
    """
    try:
        yield
    except Exception as error:
        plain = plain_error(error)
        if not isinstance(plain, ConditionalLogError) or isinstance(plain, UnreadableInputError):
            raise
        # The load itself appends after the bad rows, and its report has only its own rows and offsets.
        message = f"--bad-rows{url and ' '}{url}: {plain.message}"
        if job and isinstance(plain, InputChangedError):
            message += (
                f" To append the bad rows of the new input too, first run: spark-cas forget --force {job} {url}"
            )
        raise plain.with_message(message, appended_rows={}, next_offsets=None) from error


def _server(spec: AnySpec) -> tuple[str, list[str]]:
    parts = urlsplit(spec.url)
    return parts.scheme, sorted(parts.netloc.split(","))
