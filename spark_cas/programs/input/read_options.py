"""Read options in the form of Spark's readers: case-insensitive names, text values, and patterns of times.

Only Spark supports Java's patterns of dates and times, so Spark parses such values, and checks them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
TIME_OPTIONS = ("timeZone", "dateFormat", "timestampFormat", "timestampNTZFormat")


@dataclass(frozen=True, slots=True)
class ValueFormats:
    """Formats for the conversion of text to typed values."""

    locale: str | None = None
    time_zone: str = "UTC"
    """Time zone of timestamps without one."""
    date: str | None = None
    timestamp: str | None = None
    timestamp_ntz: str | None = None

    def pattern(self, kind: str) -> dict[str, str]:
        """Return the read option with the Java pattern of a type; empty if there is none."""
        option, pattern = {
            "date": ("dateFormat", self.date),
            "timestamp": ("timestampFormat", self.timestamp),
            "timestamp_ntz": ("timestampNTZFormat", self.timestamp_ntz),
        }.get(kind, ("", None))
        return {option: pattern} if pattern else {}


class ReadOptions:
    """Read options of a load, limited to those that the format supports."""

    def __init__(
        self, options: Mapping[str, str], names: Sequence[str], other_names: Mapping[str, str] | None = None
    ) -> None:
        known = {name.lower(): name for name in names}
        known |= {other.lower(): name for other, name in (other_names or {}).items()}
        self._values: dict[str, str] = {}
        for option, value in options.items():
            name = known.get(option.lower())
            if name is None:
                supported = ", ".join(sorted([*names, *(other_names or {})]))
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
        for option in TIME_OPTIONS[1:]:
            if pattern := self.optional(option):
                require_exact_pattern(option, pattern)
        return ValueFormats(
            locale=self.optional("locale"),
            time_zone=self.text("timeZone", "UTC"),
            date=self.optional("dateFormat"),
            timestamp=self.optional("timestampFormat"),
            timestamp_ntz=self.optional("timestampNTZFormat"),
        )


def require_exact_pattern(option: str, pattern: str) -> None:
    """Raise UsageError if Spark would drop or invent a part of a value with this pattern."""
    letters = _QUOTED.sub("", pattern)
    required = letters
    while _OPTIONAL.search(required):
        required = _OPTIONAL.sub("", required)
    problem = ""
    if not (_has("yu", required) and (_has("D", required) or (_has("ML", required) and _has("d", required)))):
        problem = "has no year, month and day outside of [...]. Add them, such as yyyy-MM-dd"
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
