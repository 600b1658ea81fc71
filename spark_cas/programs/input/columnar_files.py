"""Read Parquet and ORC files with Spark. Schemas are merged or rejected before any row is read."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - likewise

from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError, in_short
from spark_cas.programs.input.columns import inside, merged_columns, quoted, with_file_index, with_folder_columns
from spark_cas.programs.input.exact_values import ReadOptions
from spark_cas.programs.input.footers import (
    check_parquet_footers,
    invalid_file,
    reject_orc_types,
    require_microseconds,
)
from spark_cas.programs.input.listing import literal
from spark_cas.programs.input.parts import FILE, POSITION, require_free_names
from spark_cas.programs.input.spark_files import ALL_FILES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BLOCK = "_input_block"
"""Column with the position in the file, in bytes, at which the part of a task begins."""
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_OLD_HIVE = "_col"
"""Prefix of column names that old versions of Hive write."""
_HIDDEN = "_metadata"
"""Column that Spark adds to the rows of files, with the place of a row."""
_LAST_LETTER = re.compile(r"([A-Za-z0-9])(?=[^A-Za-z0-9/]*$)")
_OPTIONS = {"parquet": ("datetimeRebaseMode", "int96RebaseMode"), "orc": ()}
_READ = {**ALL_FILES, "mergeSchema": "true"}  # a column that is missing in a file is null in its rows
_READ_PARQUET = {"parquet.page.verify-checksum.enabled": "true"}
ORC_SETTINGS = {
    # Otherwise, or with more than 100 columns, Spark reads ORC by row, which sorts maps and drops equal keys.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.maxFields": str(2**31 - 1),
}
"""Settings of Spark that are required for ORC files."""
_READ_ORC = {
    "orc.force.positional.evolution": "false",
    "orc.skip.corrupt.data": "false",
    "hive.exec.orc.skip.corrupt.data": "false",
    # C++ writers record no calendar and use the Gregorian one for all dates. Spark shifts old dates by default.
    "orc.proleptic.gregorian.default": "true",
    "orc.proleptic.gregorian": "false",
}
_UTC = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu"})


def columnar_rows(
    spark: "SparkSession", files: Sequence[InputFile], format_name: str, read_options: Mapping[str, str]
) -> "tuple[DataFrame, list[str]]":
    """Return the rows of Parquet or ORC files, and the names of the columns that hold the position of a row.

    Raises:
        UsageError: The format does not have an option, or a file is empty. Spark cannot read a column or a time.
            The columns of two files differ in type, or only in the case of their names.
    """
    options = ReadOptions(read_options, _OPTIONS[format_name])
    chosen = {name: value for name in _OPTIONS[format_name] if (value := options.optional(name))}
    for each in files:
        if each.size == 0:
            raise UsageError(f"--input: file {each.path} is empty, so it is not a {format_name} file.")
    if format_name == "parquet":
        check_parquet_footers(spark, files)
    require_microseconds(files, format_name)
    frame = _load(spark, format_name, chosen, files)
    if format_name == "parquet":
        positions = {POSITION: F.col("_metadata.row_index")}
    else:
        # Spark reads the rows of a part in order. Rows of ORC files have no index.
        positions = {_BLOCK: F.col("_metadata.file_block_start"), POSITION: F.monotonically_increasing_id()}
    indexed = with_file_index(spark, frame, files, positions)
    if format_name == "orc":
        indexed = _checked_times(spark, indexed)
    return with_folder_columns(spark, indexed, files), [FILE, *positions]


def _load(
    spark: "SparkSession", format_name: str, options: Mapping[str, str], files: Sequence[InputFile]
) -> "DataFrame":
    own = _READ_ORC if format_name == "orc" else _READ_PARQUET
    reader = spark.read.format(format_name).options(**{**_READ, **own, **options})
    folded = str(spark.conf.get(_CASE_SENSITIVE))
    # Otherwise Spark merges columns whose names differ only by case, and keeps one of the names.
    spark.conf.set(_CASE_SENSITIVE, "true")
    try:
        frame = reader.load(_paths_in_order(files))
        if any(each.lower() == _HIDDEN for each in frame.columns):
            for each in files:
                _require_no_hidden_column(each, reader.load(literal(each.path)).columns)
        if format_name == "orc" and any(each.startswith(_OLD_HIVE) for each in frame.columns):
            for each in files:
                _require_names(frame.columns, each, reader.load(literal(each.path)).columns)
    except Exception as error:
        invalid = invalid_file(files, format_name)
        if invalid:
            raise UsageError(
                f"--input: file {invalid} is cut, or is not of the format {format_name}. Nothing was appended. Write "
                f"it again, or remove it from the input."
            ) from error
        if format_name == "orc":
            reject_orc_types(files, error)
        if "[CANNOT_MERGE_SCHEMAS]" not in str(error):
            raise
        # Spark's error does not name a file.
        merged_columns((each.path, reader.load(literal(each.path)).schema) for each in files)
        raise UsageError(in_short(error)) from error
    finally:
        spark.conf.set(_CASE_SENSITIVE, folded)
    _require_distinct_names(frame.schema, ())
    require_free_names(frame.columns)
    return frame


def _paths_in_order(files: Sequence[InputFile]) -> list[str]:
    """Return the paths for Spark's readers in order. The first path determines the order of columns.

    Spark's readers put patterns first. If one path must be a pattern because it needs a backslash, the others become
    patterns too, by their last letter or digit.
    """
    paths = [literal(each.path) for each in files]
    if any("\\" in each for each in paths):
        return [each if "\\" in each else _LAST_LETTER.sub(r"[\1]", each) for each in paths]
    return paths


def _require_no_hidden_column(file: InputFile, columns: Sequence[str]) -> None:
    for name in columns:
        if name.lower() == _HIDDEN:
            raise UsageError(
                f"--input: file {file.path} has column {name}, which is the name of a hidden column of Spark. "
                f"Nothing was appended. Rename the column in the file."
            )


def _require_names(merged: Sequence[str], file: InputFile, columns: Sequence[str]) -> None:
    """Check that Spark does not match the columns of an ORC file by position, if their order differs.

    Spark matches all columns by position if each name has the prefix of old versions of Hive. Raises UsageError if it
    would read other columns.
    """
    by_place = all(each.startswith(_OLD_HIVE) for each in columns)
    if by_place and list(columns) != list(merged[: len(columns)]):
        raise UsageError(
            f"--input: file {file.path} has the columns {', '.join(columns)}, and other files have others. Spark "
            f"reads columns by place if each name begins with {_OLD_HIVE}. Nothing was appended. Load it separately."
        )


def _require_distinct_names(kind: T.DataType, place: tuple[str, ...]) -> None:
    """Check that the names of a row or a nested struct do not differ only in case. Raises UsageError if they do."""
    match kind:
        case T.ArrayType():
            _require_distinct_names(kind.elementType, (*place, "element"))
        case T.MapType():
            _require_distinct_names(kind.keyType, (*place, "key"))
            _require_distinct_names(kind.valueType, (*place, "value"))
        case T.StructType():
            known: dict[str, str] = {}
            for field in kind:
                other = known.setdefault(field.name.lower(), field.name)
                if other != field.name:
                    raise UsageError(
                        f"--input: column {'.'.join((*place, field.name))} differs only by case from {other}. "
                        f"Nothing was appended. Use one name in all files."
                    )
                _require_distinct_names(field.dataType, (*place, field.name))


def _checked_times(spark: "SparkSession", frame: "DataFrame") -> "DataFrame":
    """Add checks to the DataFrame of ORC files. A task fails for a date or timestamp that Spark may have shifted.

    Spark reads the days from 1582-10-05 to 1582-10-14 ten days later. The check rejects the days that these become.
    Raises UsageError if there are timestamps and the time zone of a JVM is not UTC.
    """
    nothing = F.lit(None)
    kinds = {each.name: each.dataType for each in frame.schema}
    if any(_timestamps(kind, nothing.cast(kind)) is not None for kind in kinds.values()):
        _require_utc(spark)
    columns = []
    for name, kind in kinds.items():
        column = F.col(quoted(name))
        may_be_shifted = _shifted(kind, column)
        if may_be_shifted is not None:
            error = F.raise_error(
                F.lit(
                    f"column {name} has a day between 1582-10-15 and 1582-10-24, or Spark has read an earlier day as "
                    f"one of these. Nothing was appended. Write the file as Parquet."
                )
            )
            column = F.when(may_be_shifted, error).otherwise(column).alias(name)
        columns.append(column)
    return frame.select(*columns)


def _timestamps(kind: T.DataType, value: "Column") -> "Column | None":
    return F.lit(True) if isinstance(kind, T.TimestampType) else inside(_timestamps, kind, value)  # noqa: FBT003


def _shifted(kind: T.DataType, value: "Column") -> "Column | None":
    if isinstance(kind, T.DateType):
        return value.between(F.lit("1582-10-15").cast("date"), F.lit("1582-10-24").cast("date"))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return value.between(F.lit("1582-10-15 00:00:00").cast(kind), F.lit("1582-10-24 23:59:59.999999").cast(kind))
    return inside(_shifted, kind, value)


def _require_utc(spark: "SparkSession") -> None:
    """Check that the JVM time zone of a task is UTC. Raises UsageError if it is not.

    Spark's ORC reader adds the offset of the JVM time zone.
    """
    tasks = spark.range(0, 8, 1, 8).selectExpr("reflect('java.time.ZoneId', 'systemDefault') AS zone")
    other = sorted({row["zone"] for row in tasks.distinct().collect()} - _UTC)
    if other:
        raise UsageError(
            f"--input: ORC files with timestamps, and the time zone of the JVM is {other[0]}. ORC stores local times "
            f"without a zone, and Spark's reader would add the one of the JVM. Nothing was appended. To load the "
            f"times as UTC, start the JVMs of driver and executors with TZ=UTC or -Duser.timezone=UTC."
        )
