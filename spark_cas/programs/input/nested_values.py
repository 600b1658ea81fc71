"""Check the values of a column, including values in structs, arrays and maps."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - likewise

if TYPE_CHECKING:
    from pyspark.sql import Column

Check = Callable[[T.DataType, "Column"], "Column | None"]
"""A function that returns a condition for invalid values; None if the type has no invalid values."""


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
    combined = None
    for each in conditions:
        if each is not None:
            combined = each if combined is None else combined | each
    return combined


def _any(check: Check, kind: T.DataType, values: "Column") -> "Column | None":
    if check(kind, F.lit(None).cast(kind)) is None:
        return None

    def fails(each: "Column") -> "Column":
        condition = check(kind, each)
        return F.lit(False) if condition is None else F.coalesce(condition, F.lit(False))  # noqa: FBT003 - a literal

    return F.exists(values, fails)
