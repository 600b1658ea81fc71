"""Exact conversion of text to typed values, and the read options that state the form of the text.

Functions over arrays raise ValueError for a value that they cannot represent. Read options are those of Spark's
readers: case-insensitive names, and text values. Only Spark supports Java's patterns of dates and times, so it parses
such values itself, and checks them.
"""

import decimal
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - as above

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.columns import quoted
from spark_cas.programs.input.parts import POSITION, SHOWN_CHARACTERS, shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FLAGS = {"true": True, "false": False}
PLACE = "_input_place"
"""Column with the file and line of a row, for errors that Spark raises after the task has parsed the row."""
_QUOTED = re.compile(r"'[^']*'")
_OPTIONAL = re.compile(r"\[[^\[\]]*(\]|$)")
_TIME = "HhKkmsSanNAB"
_OFFSETS = "XxZO"
_ZONE_NAMES = "zvV"
_NANOSECONDS = "S" * 7
_DAY = "INTERVAL '24' HOUR"
_PATTERN_OPTIONS = {"date": "dateFormat", "timestamp": "timestampFormat", "timestamp_ntz": "timestampNTZFormat"}
"""The read option with the Java pattern of each type."""
TIME_OPTIONS = ("timeZone", *_PATTERN_OPTIONS.values())
_ALIASES = {"delimiter": "sep", "charset": "encoding"}
"""Other names of Spark for read options."""


@dataclass(frozen=True, slots=True)
class ValueFormats:
    """Formats for the conversion of text to typed values."""

    locale: str | None = None
    time_zone: str = "UTC"
    """Time zone of timestamps without one."""
    patterns: tuple[tuple[str, str], ...] = ()
    """Each type with a Java pattern, and the pattern."""

    def pattern(self, kind: str) -> dict[str, str]:
        """Return the read option with the Java pattern of a type; empty if there is none."""
        return {_PATTERN_OPTIONS[each]: pattern for each, pattern in self.patterns if each == kind}


class ReadOptions:
    """Read options of a load, limited to those that the format supports."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str]) -> None:
        known = {name.lower(): name for name in names}
        known |= {alias: name for alias, name in _ALIASES.items() if name in names}
        self._values: dict[str, str] = {}
        for option, value in options.items():
            name = known.get(option.lower())
            if name is None:
                supported = ", ".join(sorted(names))
                raise UsageError(f"read option {option}: not known for this format; expected one of {supported}.")
            if self._values.setdefault(name, value) != value:
                raise UsageError(f"read option {option}: occurs twice, with different values.")

    def text(self, name: str, default: str) -> str:
        """Return the value of an option."""
        return self._values.get(name, default)

    def optional(self, name: str) -> str | None:
        """Return the value of an option; None if it is not set."""
        return self._values.get(name) or None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the value of a boolean option."""
        value = self._values.get(name)
        if value is None:
            return default
        if value.lower() not in _FLAGS:
            raise UsageError(f"read option {name}: expected true or false, not {value!r}.")
        return _FLAGS[value.lower()]

    def require_fail_fast(self) -> None:
        """Reject modes other than FAILFAST, because they change or drop rows."""
        mode = self.text("mode", "FAILFAST")
        if mode.upper() != "FAILFAST":
            raise UsageError(f"read option mode: expected FAILFAST, not {mode!r}: a load keeps each row or fails.")

    def value_formats(self) -> ValueFormats:
        """Return the formats of typed values. Raises UsageError for a pattern that is not exact."""
        patterns = {kind: pattern for kind, option in _PATTERN_OPTIONS.items() if (pattern := self.optional(option))}
        for kind, pattern in patterns.items():
            require_exact_pattern(_PATTERN_OPTIONS[kind], pattern)
        return ValueFormats(self.optional("locale"), self.text("timeZone", "UTC"), tuple(patterns.items()))


_SHORT_YEAR = re.compile("(?<!y)yy(?!y)|(?<!u)uu(?!u)")


def require_exact_pattern(option: str, pattern: str) -> None:
    """Raise UsageError if Spark would drop or invent a part of a value with this pattern."""
    letters = _QUOTED.sub("", pattern)
    required = letters
    while _OPTIONAL.search(required):
        required = _OPTIONAL.sub("", required)
    problem = ""
    if not (_has("yu", required) and (_has("D", required) or (_has("ML", required) and _has("d", required)))):
        problem = "has no year, month and day outside of [...]. Add them, such as yyyy-MM-dd"
    elif _SHORT_YEAR.search(letters):
        problem = "has a year of two digits, to which Spark adds a century. Use yyyy, or the type STRING in --schema"
    elif option == "dateFormat" and _has(_TIME + _OFFSETS + _ZONE_NAMES, letters):
        problem = "has a time or a zone, which a DATE does not keep. Use the type TIMESTAMP in --schema"
    elif _NANOSECONDS in letters:
        problem = "has nanoseconds, which Spark drops. Use at most six letters S, or the type STRING in --schema"
    elif _has("hK", letters) and not _has("a", required):
        problem = "has hours from 1 to 12 without the letter a. Add a, or use HH"
    elif _has(_ZONE_NAMES, letters):
        problem = "has the name of a zone, which can be more than one moment. Use an offset such as XXX"
    elif option == "timestampNTZFormat" and _has(_OFFSETS, letters):
        problem = "has a zone, which a TIMESTAMP_NTZ does not keep. Use the type TIMESTAMP in --schema"
    if problem:
        raise UsageError(f"read option {option}: {pattern!r} {problem}.")


def _has(letters: str, pattern: str) -> bool:
    return any(each in pattern for each in letters)


def text_fields(fields: T.StructType, formats: ValueFormats) -> T.StructType:
    """Return fields in which each date and time with a pattern is text, at any depth."""
    return T.StructType(
        [T.StructField(each.name, text_type(each.dataType, formats), each.nullable) for each in fields]
    )


def text_type(kind: T.DataType, formats: ValueFormats) -> T.DataType:
    """Return a type in which each date and time with a pattern is text, at any depth."""
    match kind:
        case T.StructType():
            return text_fields(kind, formats)
        case T.ArrayType():
            return T.ArrayType(text_type(kind.elementType, formats), kind.containsNull)
        case T.MapType():
            return T.MapType(kind.keyType, text_type(kind.valueType, formats), kind.valueContainsNull)
    return T.StringType() if formats.pattern(kind.simpleString()) else kind


def with_parsed_times(rows: "DataFrame", fields: T.StructType, formats: ValueFormats) -> "DataFrame":
    """Parse the texts of rows that have `text_fields`, and the columns `PLACE` and `POSITION`.

    A task fails for a text that its pattern does not keep exactly. The result has no column `PLACE`.
    """
    times = {
        each.name: _parsed(each.dataType, F.col(quoted(each.name)), each.name, formats)
        for each in fields
        if text_type(each.dataType, formats) != each.dataType
    }
    if not times:
        return rows.drop(PLACE)
    # As part of the position, the check runs even if no expression uses the column.
    is_checked = F.to_json(F.struct(*times.values())).isNotNull()
    return rows.withColumns({**times, POSITION: F.when(is_checked, F.col(POSITION))}).drop(PLACE)


def _parsed(kind: T.DataType, value: "Column", name: str, formats: ValueFormats) -> "Column":
    match kind:
        case T.StructType():
            members = [
                _parsed(each.dataType, value.getField(each.name), f"{name}.{each.name}", formats).alias(each.name)
                for each in kind
            ]
            return F.when(value.isNotNull(), F.struct(*members))
        case T.ArrayType():
            return F.transform(value, lambda each: _parsed(kind.elementType, each, f"{name}[]", formats))
        case T.MapType():
            return F.transform_values(value, lambda _, each: _parsed(kind.valueType, each, f"{name}[]", formats))
    if not formats.pattern(kind.simpleString()):
        return value
    zones = [formats.time_zone, "UTC", "+01:00"][: 3 if kind == T.TimestampType() else 1]
    document = F.to_json(F.struct(value.alias("t")))
    options = {"enableDateTimeParsingFallback": "false", **formats.pattern(kind.simpleString())}
    if formats.locale:
        options["locale"] = formats.locale
    parsed = [
        F.from_json(document, T.StructType([T.StructField("t", kind)]), {**options, "timeZone": zone})["t"]
        for zone in zones
    ]
    # The array evaluates the texts and times once, although the check uses them often.
    once = F.array(F.struct(value.alias("text"), *(each.alias(f"t{at}") for at, each in enumerate(parsed))))
    return F.get(F.transform(once, lambda each: _checked(each, kind.simpleString(), name, formats)), F.lit(0))


def _checked(values: "Column", kind: str, name: str, formats: ValueFormats) -> "Column":
    """Return a time, or Spark's error if its text is not exactly this time.

    ``values`` are the text and its times in the zone of the formats and, for a timestamp, in UTC and another zone.
    """
    text, value = values["text"], values["t0"]
    [(option, pattern)] = formats.pattern(kind).items()

    def error(problem: str) -> "Column":
        shown_text = F.regexp_replace(F.substring(text, 1, SHOWN_CHARACTERS), r"[\r\n]", " ")
        parts = [F.col(PLACE), F.lit(f": column {shown(name)}: '"), shown_text, F.lit(f"' {problem}")]
        return F.raise_error(F.concat(*parts))

    result = F.when(
        text.isNotNull() & value.isNull(),
        error(f"does not match the read option {option}. Correct the value or the option"),
    )
    if kind == "timestamp":
        is_wrong = ~_exists_once(value, values["t1"], formats.time_zone)
        if _has(_OFFSETS, _QUOTED.sub("", pattern)):
            is_wrong &= values["t1"] != values["t2"]  # a text with an offset is the same instant in each zone
        zone = shown(formats.time_zone)
        result = result.when(
            is_wrong, error(f"is a time that the zone {zone} skips or repeats. Correct it, or add an offset")
        )
    return result.otherwise(value)


def _exists_once(instant: "Column", local: "Column", zone: str) -> "Column":
    """Return whether a local time, given as if in UTC, is exactly this instant in a zone."""

    def clock(at: "Column") -> "Column":
        return F.from_utc_timestamp(at, F.lit(zone))

    result = clock(instant) == local
    for near in (instant - F.expr(_DAY), instant + F.expr(_DAY)):
        offset = F.unix_micros(clock(near)) - F.unix_micros(near)
        other = F.timestamp_micros(F.unix_micros(local) - offset)
        result &= (other == instant) | (clock(other) != local)
    return result


_INTEGER = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NOT_FINITE = r"^(NaN|[+-]?Inf(inity)?)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_LAST_RULES = datetime(2037, 1, 1)  # noqa: DTZ001 - a local time
"""Local time from which this module uses zoneinfo, because pyarrow's rules for summer time end in 2037."""
_MICROSECOND = timedelta(microseconds=1)
_FLOATS = {32: pa.float32(), 64: pa.float64()}
_EXACT_CHARACTERS = {32: 6, 64: 15}
"""Decimal digits that a floating-point number represents exactly, by its size in bits."""
_WITHOUT_LIMIT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_DECIMAL_DIGITS = 38
_MOST_DIGITS = 10_000
"""Maximum number of digits. Larger numbers or exponents would exhaust the memory when expanded."""
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, "float": 32, "double": 64}
_KINDS = (*_BITS, "decimal", "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")


def integers(text: pa.Array, bits: int) -> pa.Array:
    """Return integers of 8, 16, 32 or 64 bits."""
    require(text, _INTEGER)
    return _without_plus(text).cast({8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits])


def decimals(text: pa.Array, precision: int, scale: int) -> pa.Array:
    """Return decimals. Trailing zeros beyond the scale are permitted."""
    require(text, _NUMBER)
    kind = pa.decimal128(precision, scale)
    short = pc.and_(
        pc.less_equal(pc.binary_length(text), _DECIMAL_DIGITS - scale),
        pc.invert(pc.match_substring_regex(text, "[eE]")),
    )
    if pc.all(short).as_py() is not False:
        return text.cast(kind)
    # If digits and scale exceed 38 together, pyarrow 26 returns a wrong number. It crashes for large exponents.
    exact = [None if each is None else _exact_decimal(each, precision, scale) for each in text.to_pylist()]
    return pa.array(exact, kind)


def floats(text: pa.Array, bits: int) -> pa.Array:
    """Return floating-point numbers whose shortest text equals the input number."""
    regular = pc.match_substring_regex(text, _NUMBER)
    require(text.filter(pc.invert(regular)), _NOT_FINITE)
    result = _without_plus(text).cast(_FLOATS[bits])
    # Few digits without an exponent are always exact. pc.and_kleene is null for absent values, which filter drops.
    long = pc.or_(pc.greater(pc.binary_length(text), _EXACT_CHARACTERS[bits]), pc.match_substring_regex(text, "[eE]"))
    suspect = pc.and_(regular, long)
    for each in text.filter(suspect).to_pylist():
        require_exact_float(each, bits)
    return result


def require_exact_float(text: str, bits: int) -> None:
    """Raise ValueError if a floating-point number cannot represent the text exactly."""
    number = parse_decimal(text)
    nearest = pa.scalar(text.removeprefix("+")).cast(_FLOATS[bits]).as_py()
    # The shortest text of a 32-bit number is shorter than that of the same number in 64 bits.
    shortest = str(np.float32(nearest) if _FLOATS[bits] == pa.float32() else nearest)
    if not np.isfinite(nearest) or Decimal(shortest) != number:
        raise ValueError(text)


def parse_decimal(text: str) -> Decimal:
    """Return a number as a Decimal. Raises ValueError if it has more digits than any type supports."""
    try:
        number = _WITHOUT_LIMIT.create_decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(text) from None
    if len(text) > _MOST_DIGITS or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(text)
    return number


def booleans(text: pa.Array) -> pa.Array:
    """Return booleans from the words true and false, in any case."""
    lower = pc.utf8_lower(text)
    require(lower, "^(true|false)$")
    return pc.equal(lower, "true")


def dates(text: pa.Array) -> pa.Array:
    """Return dates of the form 2024-07-31."""
    require(text, _DATE)
    return text.cast(pa.date32())


def local_timestamps(text: pa.Array) -> pa.Array:
    """Return timestamps without a zone, of the form 2024-07-31T12:00:00.123456."""
    require(text, f"{_TIMESTAMP}$")
    return _microseconds(text).cast(pa.timestamp("us"))


def timestamps(text: pa.Array, zone: str) -> pa.Array:
    """Return timestamps. The zone applies to values without a zone."""
    require(text, f"{_TIMESTAMP}{_ZONE[:-1]}?$")
    text = _microseconds(text)
    # A date without a time ends like a zone: -31.
    has_zone = pc.and_(pc.match_substring_regex(text, _ZONE), pc.greater(pc.binary_length(text), len("2024-07-31")))
    with_zone = pc.if_else(has_zone, text, None).cast(pa.timestamp("us", "UTC"))
    local = pc.if_else(has_zone, None, text).cast(pa.timestamp("us"))
    return pc.coalesce(with_zone, _in_zone(local, zone).cast(pa.timestamp("us", "UTC")))


def _in_zone(local: pa.Array, zone: str) -> pa.Array:
    """Return the instants of local times."""
    if zone.startswith(("+", "-")):
        return pc.assume_timezone(local, zone)
    is_late = pc.fill_null(pc.greater_equal(local, pa.scalar(_LAST_RULES, local.type)), False)  # noqa: FBT003
    instants = pc.assume_timezone(pc.if_else(is_late, None, local), zone)
    if not pc.any(is_late).as_py():
        return instants
    rules = ZoneInfo(zone)
    late = [None if each is None else _instant(each, rules) for each in pc.if_else(is_late, local, None).to_pylist()]
    return pc.coalesce(instants, pa.array(late, pa.int64()).cast(instants.type))


def _instant(local: datetime, zone: ZoneInfo) -> int:
    """Return the microseconds since 1970 of a local time that the zone has exactly once."""
    offset = local.replace(tzinfo=zone).utcoffset()
    if offset is None or offset != local.replace(tzinfo=zone, fold=1).utcoffset():
        raise ValueError(local.isoformat())
    return (local - datetime(1970, 1, 1) - offset) // _MICROSECOND  # noqa: DTZ001 - a local time


def _exact_decimal(text: str, precision: int, scale: int) -> Decimal:
    number = parse_decimal(text)
    rounded = number.quantize(Decimal(1).scaleb(-scale), context=_WITHOUT_LIMIT)
    if rounded != number or len(rounded.as_tuple().digits) > max(precision, 1):
        raise ValueError(text)
    return rounded


def _without_plus(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"^\+", "")


def _microseconds(text: pa.Array) -> pa.Array:
    """Remove zeros after the sixth decimal of a second."""
    return pc.replace_substring_regex(text, r"(\.[0-9]{6})0+", r"\1")


def require(text: pa.Array, pattern: str) -> None:
    """Raise ValueError if a text does not match the pattern."""
    matches = pc.match_substring_regex(text, pattern)
    if pc.all(matches).as_py() is False:
        raise ValueError(pattern)


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
        bits = _BITS.get(self.kind, 0)
        conversions: dict[str, Callable[[pa.Array], pa.Array]] = {
            **dict.fromkeys(("float", "double"), partial(floats, bits=bits)),
            "string": lambda text: text,
            "binary": lambda text: text.cast(pa.binary()),
            "boolean": booleans,
            "decimal": partial(decimals, precision=self.precision, scale=self.scale),
            "date": dates,
            "timestamp": partial(timestamps, zone=self.zone),
            "timestamp_ntz": local_timestamps,
        }
        return conversions.get(self.kind, partial(integers, bits=bits))(text)

    def fix(self) -> str:
        """Return the advice for a value that does not match the type."""
        if self.kind in (*_BITS, "decimal") and self.numbers is None:
            return "Use a type that holds it, or --read-option locale=NAME if the numbers are not like 1234.5"
        if self.kind in ("date", "timestamp", "timestamp_ntz"):
            return "Correct it, or give its format as --read-option dateFormat, timestampFormat or timestampNTZFormat"
        return "Correct it, or use a type that holds it, such as STRING"


def text_column(field: T.StructField, formats: ValueFormats, numbers: NumberFormat | None = None) -> TextColumn:
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


def wrong_values(text: pa.Array, column: TextColumn) -> Iterator[int]:
    """Yield the index of each text that the column's type cannot represent exactly."""
    for record in range(len(text)):
        try:
            column.values(text.slice(record, 1))
        except ValueError:
            yield record


def _in_plain_digits(text: pa.Array, numbers: NumberFormat) -> pa.Array:
    grouping, point = re.escape(numbers.grouping), re.escape(numbers.decimal)
    require(text, rf"^[+-]?([0-9]{{1,3}}({grouping}[0-9]{{3}})+|[0-9]+)({point}[0-9]*)?$")
    text = pc.replace_substring(text, numbers.grouping, "")
    return pc.replace_substring(text, numbers.decimal, ".")
