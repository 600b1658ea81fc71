"""Columns of a load: those of several files, the file of each row, and checks of values at any depth."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - likewise

from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import spark_uri
from spark_cas.programs.input.parts import FILE, require_free_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_URI = "_input_uri"
Check = Callable[[T.DataType, "Column"], "Column | None"]
"""A function that returns a condition for invalid values; None if the type has no invalid values."""


def merged_columns(schemas: Iterable[tuple[str, T.StructType]]) -> T.StructType:
    """Return columns for the rows of all files, in the order of their first occurrence.

    ``schemas`` are the path and columns of each file. Raises UsageError if the types of a field differ, or if names
    differ only in case.
    """
    result: T.StructType | None = None
    for path, schema in schemas:
        result = schema if result is None else _merged_structs(result, schema, path, ())
    return result or T.StructType()


def arrow_type(spark: T.DataType) -> pa.DataType:
    """Return the Arrow type of the values of a column, with timestamps in UTC."""
    from spark_cas.spark.versions import arrow_schema  # tasks that read CSV do not need it

    return arrow_schema(T.StructType([T.StructField("column", spark)])).field(0).type


def _merged_structs(left: T.StructType, right: T.StructType, file: str, place: tuple[str, ...]) -> T.StructType:
    by_name = {each.name: each for each in right}
    names = {each.name.lower(): each.name for each in left}
    for name in by_name:
        if (other := names.get(name.lower(), name)) != name:
            raise UsageError(
                f"{file}: field {'.'.join((*place, name))} differs only in case from {other} in another file. "
                f"Nothing was appended. Use one name in all files."
            )
    fields = []
    for old in left:
        new = by_name.pop(old.name, None)
        if new is None:
            fields.append(T.StructField(old.name, old.dataType))
        else:
            merged = _merged(old.dataType, new.dataType, file, (*place, old.name))
            fields.append(T.StructField(old.name, merged, old.nullable or new.nullable))
    return T.StructType([*fields, *(T.StructField(each.name, each.dataType) for each in by_name.values())])


def _merged(left: T.DataType, right: T.DataType, file: str, place: tuple[str, ...]) -> T.DataType:
    match left, right:
        case T.StructType(), T.StructType():
            return _merged_structs(left, right, file, place)
        case T.ArrayType(), T.ArrayType():
            item = _merged(left.elementType, right.elementType, file, (*place, "element"))
            return T.ArrayType(item, left.containsNull or right.containsNull)
        case T.MapType(), T.MapType():
            key = _merged(left.keyType, right.keyType, file, (*place, "key"))
            value = _merged(left.valueType, right.valueType, file, (*place, "value"))
            return T.MapType(key, value, left.valueContainsNull or right.valueContainsNull)
    if left != right:
        raise UsageError(
            f"{file}: field {'.'.join(place)} has type {right.simpleString()}, and {left.simpleString()} in another "
            f"file. Nothing was appended. Load the files separately, or write them with one type."
        )
    return left


def inside(check: Check, kind: T.DataType, value: "Column") -> "Column | None":
    """Return the condition that a check finds an invalid value in a column, at any depth; None if it cannot."""
    conditions: list[Column | None] = []
    match kind:
        case T.StructType():
            conditions = [check(each.dataType, value.getField(each.name)) for each in kind]
        case T.ArrayType():
            conditions = [_any(check, kind.elementType, value)]
        case T.MapType():
            conditions = [
                _any(check, kind.keyType, F.map_keys(value)),
                _any(check, kind.valueType, F.map_values(value)),
            ]
    possible = [each for each in conditions if each is not None]
    return reduce(or_, possible) if possible else None


def _any(check: Check, kind: T.DataType, values: "Column") -> "Column | None":
    if check(kind, F.lit(None).cast(kind)) is None:
        return None

    def fails(each: "Column") -> "Column":
        condition = check(kind, each)
        return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))  # noqa: FBT003 - a literal

    return F.exists(values, fails)


def missing_fields(schema: T.DataType, result: T.DataType, name: str = "") -> str | None:
    """Return the first field of a schema that is missing in the other; None if there is none."""
    match schema, result:
        case T.StructType(), T.StructType():
            existing = {each.name: each.dataType for each in result}
            for each in schema:
                path = f"{name}.{each.name}" if name else each.name
                if each.name not in existing:
                    return path
                if missing := missing_fields(each.dataType, existing[each.name], path):
                    return missing
        case T.ArrayType(), T.ArrayType():
            return missing_fields(schema.elementType, result.elementType, name)
    return None


def quoted(name: str) -> str:
    """Quote a column name for an SQL expression."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def with_file_index(
    spark: "SparkSession", frame: "DataFrame", files: Sequence[InputFile], positions: "Mapping[str, Column]"
) -> "DataFrame":
    """Add the column `FILE` and position columns to a DataFrame of a Spark file source."""
    added = [column.alias(name) for name, column in positions.items()]
    if len(files) == 1:
        return frame.select("*", F.lit(0).alias(FILE), *added)
    located = frame.select("*", F.col("_metadata.file_path").alias(_URI), *added)
    rows = [(spark_uri(each.path), index) for index, each in enumerate(files)]
    known = F.broadcast(spark.createDataFrame(rows, f"{_URI} STRING, {FILE} INT"))
    unknown = F.raise_error(F.concat(F.lit("Spark read a file that is not in the list: "), F.col(_URI)))
    index = F.coalesce(F.col(FILE), unknown.cast("int"))
    return located.join(known, on=_URI, how="left").withColumn(FILE, index).drop(_URI)


def with_folder_columns(spark: "SparkSession", frame: "DataFrame", files: Sequence[InputFile]) -> "DataFrame":
    """Add a string column for each folder such as ``region=007``, using the column `FILE`.

    Raises UsageError if only some files are in such folders, or a folder has the name of a column.
    """
    names = _folder_names(files, frame.columns)
    if not names:
        return frame
    rows = [(index, *(value for _, value in each.partitions)) for index, each in enumerate(files)]
    fields = [T.StructField(FILE, T.IntegerType()), *(T.StructField(name, T.StringType()) for name in names)]
    known = F.broadcast(spark.createDataFrame(rows, T.StructType(fields)))
    return frame.join(known, on=FILE, how="left")


def _folder_names(files: Sequence[InputFile], columns: Sequence[str]) -> list[str]:
    first = [name for name, _ in files[0].partitions] if files else []
    for each in files:
        if [name for name, _ in each.partitions] != first:
            raise UsageError(
                f"--input: file {each.path} is not in the same folders name=value as file {files[0].path}. Nothing "
                f"was appended. Load these files apart."
            )
    require_free_names(first)
    used = {name.lower() for name in columns}
    for name in first:
        if name.lower() in used:
            raise UsageError(
                f"--input: folder {name}=... of file {files[0].path} has the name of a column of the files. Nothing "
                f"was appended. Rename the folder, or load the folder below it."
            )
        used.add(name.lower())
    return first
