"""Exact conversion of text to the types of a schema."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input import exact_values
from spark_cas.programs.input.parts import shown
from spark_cas.programs.input.read_options import ValueFormats

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, "float": 32, "double": 64}
_KINDS = (*_BITS, "decimal", "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Number format of a locale."""

    decimal: str
    grouping: str


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A text column or field of a file, with its target type."""

    name: str
    kind: str
    type: str
    """Type in Spark's notation."""
    precision: int = 0
    scale: int = 0
    nullable: bool = True
    zone: str = "UTC"
    numbers: NumberFormat | None = None

    def values(self, text: pa.Array) -> pa.Array:
        """Convert texts to values. Raises ValueError if a value is not exact."""
        if self.numbers is not None and self.kind in (*_BITS, "decimal"):
            text = _in_plain_digits(text, self.numbers)
        return self._conversion()(text)

    def _conversion(self) -> Callable[[pa.Array], pa.Array]:
        if self.kind in ("float", "double"):
            return partial(exact_values.floats, bits=_BITS[self.kind])
        if self.kind in _BITS:
            return partial(exact_values.integers, bits=_BITS[self.kind])
        others: dict[str, Callable[[pa.Array], pa.Array]] = {
            "string": lambda text: text,
            "binary": lambda text: text.cast(pa.binary()),
            "boolean": exact_values.booleans,
            "decimal": partial(exact_values.decimals, precision=self.precision, scale=self.scale),
            "date": exact_values.dates,
            "timestamp": partial(exact_values.timestamps, zone=self.zone),
            "timestamp_ntz": exact_values.local_timestamps,
        }
        return others[self.kind]

    def fix(self) -> str:
        """Return the advice for a value that does not match the type."""
        if self.kind in (*_BITS, "decimal") and self.numbers is None:
            return "Use a type that holds it, or --read-option locale=NAME if the numbers are not like 1234.5"
        if self.kind in ("date", "timestamp", "timestamp_ntz"):
            return "Correct it, or give its format as --read-option dateFormat, timestampFormat or timestampNTZFormat"
        return "Correct it, or use a type that holds it, such as STRING"


def text_column(field: "StructField", formats: ValueFormats, numbers: NumberFormat | None = None) -> TextColumn:
    """Return the column for a field of the schema. Raises UsageError for a type that text cannot represent."""
    name_of_type = field.dataType.simpleString()
    kind = name_of_type.partition("(")[0]
    if kind not in _KINDS:
        raise UsageError(
            f"--schema: column {shown(field.name)} of a text format cannot have the type {name_of_type}; "
            f"expected one of {', '.join(_KINDS)}."
        )
    precision, scale = getattr(field.dataType, "precision", 0), getattr(field.dataType, "scale", 0)
    return TextColumn(field.name, kind, name_of_type, precision, scale, field.nullable, formats.time_zone, numbers)


def first_wrong(text: pa.Array, column: TextColumn) -> int:
    """Return the index of the first text that the column's type cannot represent exactly."""
    for record in range(len(text)):
        try:
            column.values(text.slice(record, 1))
        except ValueError:
            return record
    raise AssertionError(f"column {column.name}: no value alone is wrong")


def _in_plain_digits(text: pa.Array, numbers: NumberFormat) -> pa.Array:
    grouping, point = re.escape(numbers.grouping), re.escape(numbers.decimal)
    exact_values.require(text, rf"^[+-]?([0-9]{{1,3}}({grouping}[0-9]{{3}})+|[0-9]+)({point}[0-9]*)?$")
    text = pc.replace_substring(text, numbers.grouping, "")
    return pc.replace_substring(text, numbers.decimal, ".")
