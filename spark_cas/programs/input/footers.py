"""Read the footers and timestamps of local Parquet and ORC files with PyArrow, independently of Spark."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql.utils import is_remote

from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError, plain_error
from spark_cas.programs.input.listing import literal_paths
from spark_cas.spark.jvm import java_session, jvm_of
from spark_cas.spark.versions import PYSPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_LOCAL = "file:"
_UNREADABLE = frozenset({"Float16", "Interval", "Time", "UUID"})
"""Logical types that Spark does not read."""
_MOST_DIGITS = 38
"""Maximum number of digits of a decimal in Spark."""
_ENCRYPTED = b"PARE"
"""First bytes of a Parquet file whose footer is encrypted."""
_ORC_CPP = "ORC_CPP"
"""PyArrow's name of the C++ library of ORC, as the writer of a file."""
_SECOND = 1_000_000_000
_THREADS = 8
SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
"""Metadata key of a Parquet file for Spark's schema."""
_DEFAULT = "EXISTS_DEFAULT"
"""Key in the metadata of a field. Its value replaces the null of files that lack the column."""
_NULLS = "spark.sql.parquet.reader.respectUnknownTypeAnnotation.enabled"
"""Setting of Spark that keeps a column without a type, whose values are all null, apart from other columns."""
_MONTHS = frozenset({"interval year", "interval month", "interval year to month"})
_Place = tuple[str, ...]
"""The names of the enclosing columns and of the column itself."""


class _Columns(NamedTuple):
    """The columns of a Parquet file."""

    names: tuple[str, ...] = ()
    types: str = ""
    recorded: bytes | None = None
    """Spark's schema in the metadata of the file."""


def check_parquet_footers(spark: "SparkSession", files: Sequence[InputFile]) -> None:
    """Check the columns of local Parquet files.

    Spark may raise an error without a column name, or none. This check skips files that PyArrow cannot open. Raises
    UsageError for a column that Spark cannot read, and for a schema of Spark in the metadata that would change values
    or hide columns.
    """
    distinct: dict[_Columns, InputFile] = {}
    for file, columns in _of_local(_check, files):
        distinct.setdefault(columns, file)
    defaults: dict[str, str] = {}
    for columns, file in distinct.items():
        if columns.recorded:
            defaults.update(dict.fromkeys(_columns_with_default(spark, file.path), file.path))
    for columns, file in distinct.items():
        for name in sorted(defaults.keys() - set(columns.names) if columns.types else ()):
            raise UsageError(
                f"--input: file {file.path} does not have column {name}, for which the metadata {SPARK_SCHEMA} of "
                f"file {defaults[name]} has a default value. Nothing was appended. Write the files again without "
                f"this metadata, or load them separately."
            )


_FINER = {
    "parquet": "they have fractions of a microsecond",
    "orc": "they have fractions of a microsecond, or of a second before 1970",
}


def require_microseconds(files: Sequence[InputFile], format_name: str) -> None:
    """Check that timestamps of local ORC files, and INT96 timestamps of local Parquet files, are whole microseconds.

    These types have nanoseconds, which Spark drops. The check reads only these columns. It skips columns that PyArrow
    cannot read: in ORC, those with a time before 1677 or after 2262. Raises UsageError for a column with a fraction
    of a microsecond, or with a fraction of a second before 1970 that Spark cannot read.
    """
    for file, column in _of_local(_finer_in_parquet if format_name == "parquet" else _finer_in_orc, files):
        if column:
            raise UsageError(
                f"--input: column {column} of file {file.path} has times that Spark cannot keep: "
                f"{_FINER[format_name]}. Nothing was appended. Write its times as microseconds in Parquet."
            )


def reject_orc_types(files: Sequence[InputFile], error: Exception) -> None:
    """Raise UsageError for the first local ORC file with a type that caused the error of Spark.

    It is a union or, with older versions of Spark, a timestamp with a time zone. Spark's error names no file.
    """
    has_unknown_type = "[PARSE_SYNTAX_ERROR]" in str(error)

    def unread(file: InputFile) -> tuple[str, str]:
        with suppress(pa.ArrowException, OSError):
            for each in orc.ORCFile(_path(file)).schema:
                if _has_type(each.type, pa.types.is_union):
                    return each.name, "union, which Spark does not read. {} Write each type as its own column."
                if has_unknown_type and _has_type(
                    each.type, lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None
                ):
                    fix = "Write the file as Parquet, or use a newer pyspark."
                    return each.name, f"timestamp with local time zone, which {PYSPARK} does not read. {{}} {fix}"
        return "", ""

    for file, (column, problem) in _of_local(unread, files):
        if column:
            text = problem.format("Nothing was appended.")
            raise UsageError(f"--input: column {column} of file {file.path} has the ORC type {text}")


def invalid_file(files: Sequence[InputFile], format_name: str) -> str:
    """Return the first local file whose footer PyArrow cannot read; empty if there is none.

    Spark's error for a truncated ORC file does not name the file.
    """

    def is_invalid(file: InputFile) -> bool:
        try:
            _ROWS[format_name](file)
        except pa.ArrowException:
            return True
        except OSError as error:
            return error.errno is None  # PyArrow error for invalid bytes
        return False

    return next((file.path for file, invalid in _of_local(is_invalid, files) if invalid), "")


def footer_rows(spark: "SparkSession", files: Sequence[InputFile], format_name: str) -> int:
    """Return the number of rows of Parquet or ORC files from their footers.

    PyArrow reads the footers of local files. For other file systems, Spark counts without reading columns.
    """
    if not is_remote() and all(map(_path, files)):
        with suppress(pa.ArrowException, OSError):
            return sum(rows for _, rows in _of_local(_ROWS[format_name], files))
    reader = spark.read.format(format_name).option("recursiveFileLookup", "true").option("mergeSchema", "true")
    return reader.load(literal_paths(files)).count()


def _path(file: InputFile) -> str:
    """Return the path of a local file; empty for other files."""
    return file.path.removeprefix(_LOCAL) if file.path.startswith(f"{_LOCAL}/") else ""


def _of_local(read: Callable[[InputFile], _T], files: Sequence[InputFile]) -> Iterator[tuple[InputFile, _T]]:
    """Yield a result for each file that this process can open; on Spark Connect, they may be on another machine."""
    local = [] if is_remote() else [each for each in files if _path(each)]
    with ThreadPoolExecutor(_THREADS) as threads:
        yield from zip(local, threads.map(read, local), strict=True)


_ROWS: dict[str, Callable[[InputFile], int]] = {
    "parquet": lambda file: int(pq.read_metadata(_path(file)).num_rows),
    "orc": lambda file: int(orc.ORCFile(_path(file)).nrows),
}
"""Functions that return the number of rows in the footer of a file."""


def _check(file: InputFile) -> _Columns:
    """Return the columns of a Parquet file; none if PyArrow cannot open it.

    Raises UsageError for a column that Spark cannot read, a file without columns, and an encrypted file.
    """
    try:
        footer = pq.read_metadata(_path(file))
        columns = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError):
        with suppress(OSError), Path(_path(file)).open("rb") as stream:
            if stream.read(len(_ENCRYPTED)) == _ENCRYPTED:
                raise UsageError(
                    f"--input: file {file.path} is encrypted. Nothing was appended. Write it without encryption."
                ) from None
        return _Columns()
    if not len(footer.schema):
        raise UsageError(
            f"--input: file {file.path} has no column. Nothing was appended. Write it with columns, or remove it "
            f"from the input."
        )
    for index in range(len(footer.schema)):
        column = footer.schema.column(index)
        problem = _unreadable(column)
        if problem:
            raise UsageError(
                f"--input: column {column.path} of file {file.path} has the Parquet type {problem}, which Spark does "
                f"not read. Nothing was appended. Write it as microseconds, as text, or as a number that Spark reads."
            )
    return _Columns(tuple(columns.names), str(footer.schema), (footer.metadata or {}).get(SPARK_SCHEMA.encode()))


def _finer_in_parquet(file: InputFile) -> str:
    """Return the first INT96 column that has a fraction of a microsecond; empty if there is none."""
    with suppress(pa.ArrowException, OSError):
        schema = pq.read_metadata(_path(file)).schema
        paths = [schema.column(at).path for at in range(len(schema)) if schema.column(at).physical_type == "INT96"]
        for path in paths:
            # The product may overflow and wrap. PyArrow's nanoseconds for times after 2262 wrap too.
            exact, rounded = (
                pq.ParquetFile(_path(file), coerce_int96_timestamp_unit=unit).iter_batches(columns=[path])
                for unit in ("ns", "us")
            )
            for pair in zip(exact, rounded, strict=True):
                nanos, micros = (np.concatenate(list(_numbers(pa.array(each.to_struct_array())))) for each in pair)
                if (nanos != micros * 1000).any():
                    return str(path)
    return ""


def _finer_in_orc(file: InputFile) -> str:
    """Return the first timestamp column that has a fraction of a microsecond; empty if there is none.

    A fraction of a second before 1970 counts too, if the C++ library of ORC wrote the file: it writes negative
    nanoseconds, which the Java library rejects.
    """
    with suppress(pa.ArrowException, OSError):
        reader = orc.ORCFile(_path(file))
        names = [field.name for field in reader.schema if _has_type(field.type, pa.types.is_timestamp)]
        before_1970 = _SECOND if reader.writer == _ORC_CPP else 1
        for name in names:
            for stripe in range(reader.nstripes):
                values = reader.read_stripe(stripe, columns=[name]).to_struct_array()
                if any((each % 1000).any() or (each[each < 0] % before_1970).any() for each in _numbers(values)):
                    return str(name)
    return ""


def _has_type(kind: pa.DataType, matches: Callable[[pa.DataType], bool]) -> bool:
    return matches(kind) or any(_has_type(kind.field(at).type, matches) for at in range(kind.num_fields))


def _numbers(values: pa.Array) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the timestamps in an array as numbers, with 0 for null."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        yield values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    elif pa.types.is_struct(kind):
        for each in values.flatten():
            yield from _numbers(each)
    elif pa.types.is_map(kind):
        yield from _numbers(values.keys)
        yield from _numbers(values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _numbers(values.flatten())


def _unreadable(column: pq.ColumnSchema) -> str:
    """Return the type of a column that Spark cannot read; empty if Spark reads it."""
    logical = json.loads(column.logical_type.to_json())
    kind, unit = logical["Type"], logical.get("timeUnit", "")
    if unit == "nanoseconds" or kind in _UNREADABLE or logical.get("precision", 0) > _MOST_DIGITS:
        return " ".join([kind, *filter(None, [unit, str(logical.get("precision", ""))])])
    return ""


def _columns_with_default(spark: "SparkSession", path: str) -> list[str]:
    """Return the columns to which Spark's schema in a Parquet file gives a default value for files without them.

    Raises UsageError if this schema differs from the columns of the file.
    """
    recorded, actual = _schemas(spark, path)
    difference = _difference(dict(_places(recorded)), dict(_places(actual)))
    if difference:
        raise UsageError(
            f"--input: Spark's schema of file {path} differs from its columns: {difference}. Nothing was appended. "
            f"Write the file again without the metadata {SPARK_SCHEMA}."
        )
    return [each["name"] for each in recorded["fields"] if _DEFAULT in each["metadata"]]


def _schemas(spark: "SparkSession", path: str) -> tuple[Any, Any]:
    """Return Spark's schema in a Parquet file, and the schema that Spark derives from the columns of the file."""
    jvm: Any = jvm_of(spark)  # only Spark itself knows how it converts a column
    state = java_session(spark).sessionState()
    place = jvm.org.apache.hadoop.fs.Path(path)
    parquet, sources = jvm.org.apache.parquet.hadoop, jvm.org.apache.spark.sql.execution.datasources.parquet
    try:
        source = parquet.util.HadoopInputFile.fromPath(place, state.newHadoopConf())
        reader = parquet.ParquetFileReader.open(source)
        try:
            footer = reader.getFooter()
        finally:
            reader.close()
        settings = state.conf().clone()
        settings.setConfString(_NULLS, "true")
        converter = sources.ParquetToSparkSchemaConverter(settings)
        recorded = sources.ParquetFileFormat.readSchemaFromFooter(parquet.Footer(place, footer), converter)
        actual = converter.convert(footer.getFileMetaData().getSchema())
    except Exception as error:
        raise UsageError(
            f"--input: Spark cannot read the schema of file {path}: {plain_error(error)}. Nothing was appended. "
            f"Write the file again, or remove it from the input."
        ) from error
    return json.loads(recorded.json()), json.loads(actual.json())


def _difference(recorded: Mapping[_Place, str], actual: Mapping[_Place, str]) -> str:
    """Return the first difference between the columns of two schemas; empty if there is none."""
    for place in [*recorded, *actual]:
        column = ".".join(place)
        if place not in actual:
            return f"the file does not have column {column} of the metadata"
        if place not in recorded:
            return f"the metadata does not have column {column} of the file"
        if _stored(recorded[place]) != actual[place]:
            return f"column {column} is {actual[place]}, and its type in the metadata is {recorded[place]}"
    return ""


def _places(kind: Any, place: _Place = ()) -> Iterator[tuple[_Place, str]]:  # noqa: ANN401 - a value of JSON
    """Yield the place and the type of each column, at any depth, of a type in Spark's JSON format."""
    name, parts = str(kind), {}
    match kind:
        case {"type": "udt", "sqlType": stored}:
            yield from _places(stored, place)
            return
        case {"type": "struct", "fields": fields}:
            name, parts = "struct", {each["name"]: each["type"] for each in fields}
        case {"type": "array", "elementType": element}:
            name, parts = "array", {"element": element}
        case {"type": "map", "keyType": key, "valueType": value}:
            name, parts = "map", {"key": key, "value": value}
    yield place, name
    for part, each in parts.items():
        yield from _places(each, (*place, part))


def _stored(kind: str) -> str:
    """Return the type of the column that Spark writes for a type: a number without annotation for intervals."""
    if kind.startswith("interval "):
        return "integer" if kind in _MONTHS else "long"
    return kind
