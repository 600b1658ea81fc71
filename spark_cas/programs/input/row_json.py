"""Exact JSON of a row for ``--value-json``. Each type has one form, and values keep all digits.

docs/loading-types.md lists the form of each type. Spark's own ``to_json`` renders the row, with all options pinned.
Types that ``to_json`` renders inexactly are converted to text first: intervals, TIME and map keys. A task fails for
values that JSON cannot represent: NaN, infinities, strings that are not UTF-8, and equal keys in a map.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - likewise

from spark_cas.core.errors import SchemaError
from spark_cas.programs.input.columns import Check, inside, quoted
from spark_cas.spark.versions import TimeType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_TIMESTAMP_NTZ = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
JSON_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "dateFormat": "yyyy-MM-dd",
        "ignoreNullFields": "false",
        "locale": "en-US",
        "pretty": "false",
        "timestampFormat": _TIMESTAMP,
        "timestampNTZFormat": _TIMESTAMP_NTZ,
        "timeZone": "UTC",
        "writeNonAsciiCharacterAsCodePoint": "false",
    }
)
_EXACT = (
    T.NullType,
    T.BooleanType,
    T.IntegralType,
    T.FractionalType,
    T.StringType,
    T.CharType,
    T.VarcharType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
"""Types that ``to_json`` renders exactly, except NaN, infinities and bytes that are not UTF-8."""
_TEXT = (T.StringType, T.CharType, T.VarcharType)

_NOT_FINITE = (
    "holds NaN or an infinity, and JSON has no number for it. Replace it with --value and an SQL expression."
)
_NOT_UTF8 = "holds a string that is not UTF-8. Read the column as binary, or correct the file."
_EQUAL_KEYS = "holds a map with two equal keys, and a JSON object has each name once. Correct the file."


def row_json(frame: "DataFrame", without: Collection[str] = ()) -> "Column":
    """Return a column with each row of a DataFrame as a JSON object, with fields in column order.

    The session must have the settings of `pinned_settings`. The task fails with Spark's error of raise_error for a
    value that JSON cannot represent. Columns in ``without`` are not part of the object.

    Raises SchemaError if a column has a type without an exact JSON form, or if names differ only in case.
    """
    fields = [each for each in frame.schema.fields if each.name not in without]
    _require_distinct(fields, "")
    columns = [(each.name, each.dataType, F.col(quoted(each.name))) for each in fields]
    rows = F.to_json(F.struct(*(_form(*each).alias(each[0]) for each in columns)), dict(JSON_OPTIONS))
    checked = None
    for name, kind, column in columns:
        for problem, check in _CHECKS.items():
            fails = check(kind, column)
            if fails is not None:
                error = F.raise_error(F.lit(f"column {name} {problem}"))
                checked = F.when(fails, error) if checked is None else checked.when(fails, error)
    return rows if checked is None else checked.otherwise(rows)


def _form(path: str, kind: T.DataType, value: "Column") -> "Column":
    """Return a value in which parts that ``to_json`` renders inexactly are text. Return other values unchanged."""
    if not _needs_text(path, kind):
        return value
    match kind:
        case T.StructType():
            fields = [
                _form(f"{path}.{each.name}", each.dataType, value.getField(each.name)).alias(each.name)
                for each in kind
            ]
            return F.when(value.isNotNull(), F.struct(*fields))
        case T.ArrayType():
            return F.transform(value, lambda each: _form(f"{path}[]", kind.elementType, each))
        case T.MapType():
            return F.map_from_entries(
                F.transform(
                    F.map_entries(value),
                    lambda each: F.struct(
                        _key_text(kind.keyType, each.getField("key")).alias("key"),
                        _form(f"{path}{{}}", kind.valueType, each.getField("value")).alias("value"),
                    ),
                )
            )
    return _text(kind, value)


def _needs_text(path: str, kind: T.DataType) -> bool:
    """Return whether ``to_json`` renders part of a type inexactly. Raises SchemaError if there is no exact form."""
    match kind:
        case T.StructType():
            _require_distinct(kind.fields, f"{path}.")
            needs = [
                _needs_text(f"{path}.{each.name}", each.dataType) for each in kind
            ]  # evaluate all, so that each can raise its error
            return any(needs)
        case T.ArrayType():
            return _needs_text(f"{path}[]", kind.elementType)
        case T.MapType():
            if isinstance(kind.keyType, T.StructType | T.ArrayType | T.MapType | T.NullType):
                raise _no_form(f"{path}, a map,", f"keys of type {kind.keyType.simpleString()}")
            _needs_text(f"{path}, a key,", kind.keyType)
            return _needs_text(f"{path}{{}}", kind.valueType) or not isinstance(kind.keyType, _TEXT)
        case T.YearMonthIntervalType() | T.DayTimeIntervalType() | TimeType():
            return True
    if not isinstance(kind, _EXACT):
        raise _no_form(path, f"type {kind.simpleString()}")
    return False


def _key_text(kind: T.DataType, key: "Column") -> "Column":
    match kind:
        case T.StringType() | T.CharType() | T.VarcharType():
            return key
        case T.TimestampType():
            return F.date_format(key, _TIMESTAMP)
        case T.TimestampNTZType():
            return F.date_format(key, _TIMESTAMP_NTZ)
        case T.BinaryType():
            return F.translate(F.base64(key), "\r\n", "")
    return _text(kind, key)


def _text(kind: T.DataType, value: "Column") -> "Column":
    match kind:
        case T.YearMonthIntervalType():
            whole = value.cast(T.YearMonthIntervalType())
            parts = [F.lit("P"), *_parts(whole, {"YEAR": "Y", "MONTH": "M"})]
            return F.concat(_sign(whole, "make_ym_interval(0, 0)"), *parts)
        case T.DayTimeIntervalType():
            whole = value.cast(T.DayTimeIntervalType())
            parts = [F.lit("P"), *_parts(whole, {"DAY": "DT", "HOUR": "H", "MINUTE": "M", "SECOND": "S"})]
            return F.concat(_sign(whole, "make_dt_interval(0)"), *parts)
    return value.cast("string")


def _sign(interval: "Column", zero: str) -> "Column":
    return F.when(interval < F.expr(zero), "-").otherwise("")


def _parts(interval: "Column", units: Mapping[str, str]) -> "Iterator[Column]":
    for unit, letter in units.items():
        yield F.abs(F.extract(F.lit(unit), interval)).cast("string")
        yield F.lit(letter)


def _not_finite(kind: T.DataType, value: "Column") -> "Column | None":
    if not isinstance(kind, T.FloatType | T.DoubleType):
        return inside(_not_finite, kind, value)
    return F.isnan(value) | (F.abs(value) == F.lit(float("inf")))


def _not_utf8(kind: T.DataType, value: "Column") -> "Column | None":
    if not isinstance(kind, _TEXT):
        return inside(_not_utf8, kind, value)
    return ~F.is_valid_utf8(value)


def _equal_keys(kind: T.DataType, value: "Column") -> "Column | None":
    if not isinstance(kind, T.MapType):
        return inside(_equal_keys, kind, value)
    fails = F.size(F.array_distinct(F.map_keys(value))) < F.size(value)
    nested = inside(_equal_keys, kind, value)
    return fails if nested is None else fails | nested


_CHECKS: Mapping[str, Check] = MappingProxyType(
    {_NOT_UTF8: _not_utf8, _NOT_FINITE: _not_finite, _EQUAL_KEYS: _equal_keys}
)


def _require_distinct(fields: Collection[T.StructField], path: str) -> None:
    known: dict[str, str] = {}
    for each in fields:
        folded = each.name.lower()
        if folded in known:
            raise SchemaError(
                f"columns {path}{known[folded]} and {path}{each.name} differ at most by case, so an expression "
                f"cannot name one of them. Nothing was appended. Rename one of them, in a query with AS."
            )
        known[folded] = each.name


def _no_form(path: str, kind: str) -> SchemaError:
    return SchemaError(
        f"column {path} has {kind}, which has no exact JSON form. Nothing was appended. Make the value with --value "
        f"and an SQL expression."
    )
