"""Dates and times with a Java pattern. Only Spark supports these patterns, so Spark parses them, and checks them."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.parts import SHOWN_CHARACTERS, shown

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from spark_cas.programs.input.read_options import ValueFormats

PLACE = "_input_place"
"""Column with the file and line of a row, for errors that Spark raises after the task has parsed the row."""
NO_FIELD = "_input_corrupt"
"""Name that no field has."""
_QUOTED = re.compile(r"'[^']*'")
_OPTIONAL = re.compile(r"\[[^\[\]]*(\]|$)")
_TIME = "HhKkmsSanNAB"
_OFFSETS = "XxZO"
_ZONE_NAMES = "zvV"
_NANOSECONDS = "S" * 7
_DAY = "INTERVAL '24' HOUR"


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


def json_options(formats: "ValueFormats") -> dict[str, str]:
    """Return the options of `from_json` with all patterns.

    `from_json` returns null for a field with the name of the corrupt record, which by default is `_corrupt_record`.
    """
    options = {
        "timeZone": formats.time_zone,
        "enableDateTimeParsingFallback": "false",
        "columnNameOfCorruptRecord": NO_FIELD,
    }
    if formats.locale:
        options["locale"] = formats.locale
    for kind in ("date", "timestamp", "timestamp_ntz"):
        options |= formats.pattern(kind)
    return options


def time_problem(document: "Column", fields: "StructType", formats: "ValueFormats") -> "Column | None":
    """Return a description of the first value of a JSON document that its pattern does not keep exactly.

    The column is null if all values are exact. The result is None if no field has a pattern.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
    from pyspark.sql.types import StructType

    times = _with_pattern(fields, formats, as_text=False)
    texts = _with_pattern(fields, formats, as_text=True)
    if not isinstance(times, StructType) or not isinstance(texts, StructType):
        return None
    options = {**json_options(formats), "mode": "PERMISSIVE"}
    zones = [formats.time_zone, "UTC"]
    if formats.timestamp and _has(_OFFSETS, _QUOTED.sub("", formats.timestamp)):
        zones.append("+01:00")
    parsed = [F.from_json(document, times, {**options, "timeZone": zone}) for zone in zones]
    return _problem([F.from_json(document, texts, options), *parsed], times, "", formats)


def raised_at_place(problem: "Column") -> "Column":
    """Return Spark's error for a problem in the row at `PLACE`."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.raise_error(F.concat(F.col(PLACE), F.lit(": "), problem))


def _has(letters: str, pattern: str) -> bool:
    return any(each in pattern for each in letters)


def _with_pattern(kind: "DataType", formats: "ValueFormats", *, as_text: bool) -> "DataType | None":
    """Return the members of a type that have a pattern; None if there is none."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, StructType):
        members = [(each.name, _with_pattern(each.dataType, formats, as_text=as_text)) for each in kind]
        fields = [StructField(name, member) for name, member in members if member is not None]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType | MapType):
        element = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        member = _with_pattern(element, formats, as_text=as_text)
        if member is None:
            return None
        return ArrayType(member) if isinstance(kind, ArrayType) else MapType(StringType(), member)
    if not formats.pattern(kind.simpleString()):
        return None
    return StringType() if as_text else kind


def _problem(values: "Sequence[Column]", kind: "DataType", name: str, formats: "ValueFormats") -> "Column":
    """Describe the first wrong value. ``values`` are its text, and its values in several zones."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return F.coalesce(
            *(
                _problem(
                    [value.getField(each.name) for value in values], each.dataType, f"{name}.{each.name}", formats
                )
                for each in kind
            )
        )
    if isinstance(kind, MapType):
        values = [F.map_values(value) for value in values]
        kind = ArrayType(kind.valueType)
    if isinstance(kind, ArrayType):
        element, count = kind.elementType, len(values)
        elements = F.arrays_zip(*(F.coalesce(value, F.array()) for value in values))

        def problem_of(row: "Column") -> "Column":
            return _problem([row.getField(str(number)) for number in range(count)], element, f"{name}[]", formats)

        return F.get(F.filter(F.transform(elements, problem_of), lambda problem: problem.isNotNull()), F.lit(0))
    return _problem_of_value(values, kind.simpleString(), name[1:], formats)


def _problem_of_value(values: "Sequence[Column]", kind: str, name: str, formats: "ValueFormats") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    text, value, local, *with_offset = values
    [option] = formats.pattern(kind)
    shown_text = F.regexp_replace(F.substring(text, 1, SHOWN_CHARACTERS), r"[\r\n]", " ")

    def described(problem: str) -> "Column":
        return F.concat(F.lit(f"column {shown(name)}: '"), shown_text, F.lit(f"' {problem}"))

    problem = F.when(
        text.isNotNull() & value.isNull(),
        described(f"does not match the read option {option}. Correct the value or the option"),
    )
    if kind != "timestamp":
        return problem
    is_wrong = ~_exists_once(value, local, formats.time_zone)
    for other in with_offset:  # a text with an offset is the same instant in each zone
        is_wrong &= local != other
    zone = shown(formats.time_zone)
    return problem.when(
        is_wrong, described(f"is a time that the zone {zone} skips or repeats. Correct it, or add an offset")
    )


def _exists_once(instant: "Column", local: "Column", zone: str) -> "Column":
    """Return whether a local time, given as if in UTC, is exactly this instant in a zone."""
    from pyspark.sql import functions as F  # noqa: N812

    def clock(at: "Column") -> "Column":
        return F.from_utc_timestamp(at, F.lit(zone))

    result = clock(instant) == local
    for near in (instant - F.expr(_DAY), instant + F.expr(_DAY)):
        offset = F.unix_micros(clock(near)) - F.unix_micros(near)
        other = F.timestamp_micros(F.unix_micros(local) - offset)
        result &= (other == instant) | (clock(other) != local)
    return result
