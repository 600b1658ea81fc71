"""Merge the columns of files. A field that is missing in a file is null in its rows."""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from spark_cas.programs.errors import UsageError

_SIMPLE: dict[T.DataType, pa.DataType] = {
    T.BooleanType(): pa.bool_(),
    T.ByteType(): pa.int8(),
    T.ShortType(): pa.int16(),
    T.IntegerType(): pa.int32(),
    T.LongType(): pa.int64(),
    T.FloatType(): pa.float32(),
    T.DoubleType(): pa.float64(),
    T.StringType(): pa.string(),
    T.BinaryType(): pa.binary(),
    T.DateType(): pa.date32(),
    T.TimestampType(): pa.timestamp("us", tz="UTC"),
    T.TimestampNTZType(): pa.timestamp("us"),
}


def merged_columns(schemas: Iterable[tuple[str, T.StructType]]) -> T.StructType:
    """Return columns for the rows of all files, in the order of their first occurrence.

    Args:
        schemas: path and columns of each file

    Raises:
        UsageError: if the types of a field differ, or names differ only in case
    """
    result: T.StructType | None = None
    for path, schema in schemas:
        result = schema if result is None else _merged_structs(result, schema, path, ())
    return result or T.StructType()


def arrow_type(spark: T.DataType) -> pa.DataType:
    """Return the Arrow type of the values of a column."""
    match spark:
        case T.StructType():
            return pa.struct([pa.field(each.name, arrow_type(each.dataType), each.nullable) for each in spark])
        case T.ArrayType():
            return pa.list_(pa.field("element", arrow_type(spark.elementType), spark.containsNull))
        case T.MapType():
            value = pa.field("value", arrow_type(spark.valueType), spark.valueContainsNull)
            return pa.map_(arrow_type(spark.keyType), value)
        case T.DecimalType():
            return pa.decimal128(spark.precision, spark.scale)
    return _SIMPLE[spark]


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
