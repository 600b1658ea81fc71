"""From files to a frame that can be written: Spark reads them, SQL expressions make key and value."""

import re
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

from spark_cas.programs.exit_codes import UsageError
from spark_cas.programs.load_request import LoadRequest
from spark_cas.programs.plain_errors import in_short
from spark_cas.spark.writing.route import route

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_JSON = {"timeZone": "UTC"}
"""Times in a value must not depend on the session that loads it: another one may resume the job."""

# A malformed row is an error: Spark's default would load it as nulls, silently and for ever. CSV is that of RFC 4180:
# a quote in a value is doubled, and a value may hold line breaks. Without multiLine Spark makes of such a row two,
# and finds nothing wrong where the columns fit; with it a file is read by one task. Spark would take columns by their
# place alone, whatever the header of a file calls them.
_READ_DEFAULTS = {
    "csv": {"header": "true", "mode": "FAILFAST", "escape": '"', "multiLine": "true", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}
_DIRECTION = re.compile(r"(?P<expression>.+?)\s+(?P<direction>asc|desc)\s*", re.IGNORECASE | re.DOTALL)
_ORDER = "_order_"


def routed_input(spark: "SparkSession", request: LoadRequest) -> "DataFrame":
    """The rows of a load, routed to the partitions of its log.

    Raises UsageError when the input is not there or an expression does not fit it; what `route` raises.
    """
    rows, order = ordered_input(spark, request)
    # The load itself has told by now that no job was named, where that is so.
    routed = route(rows, {**request.write_options(), "job": request.job}, order_by=order)
    return routed.drop(*(name for name, _ in _order(request)))


def ordered_input(spark: "SparkSession", request: LoadRequest) -> "tuple[DataFrame, list[Column]]":
    """The rows of a load as columns key, value and those that order them, and the order. Raises UsageError."""
    try:
        frame = _read(spark, request)
        rows = frame.select(_key(request), _value(request), *_order_columns(request))
    except AnalysisException as error:
        raise UsageError(in_short(error)) from error
    return rows, [F.col(name).desc() if falling else F.col(name).asc() for name, falling in _order(request)]


def _read(spark: "SparkSession", request: LoadRequest) -> "DataFrame":
    reader = spark.read.format(request.format)
    if request.schema is not None:
        reader = reader.schema(request.schema)
    options = {**_READ_DEFAULTS[request.format], **dict(request.read_options)}
    return reader.options(**options).load(list(request.inputs))


def _key(request: LoadRequest) -> "Column":
    key = F.lit(None).cast("string") if request.key is None else F.expr(request.key)
    return key.alias("key")


def _value(request: LoadRequest) -> "Column":
    value = F.to_json(F.struct("*"), _JSON) if request.value is None else F.expr(request.value)
    return value.alias("value")


def _order_columns(request: LoadRequest) -> "list[Column]":
    # What orders the rows may be neither key nor value, so it comes along as columns of its own.
    # Within CASE a word behind an expression is an error: alone it would be an alias, "x DSC" as good as "x".
    return [
        F.expr(f"CASE WHEN true THEN {_split(text)[0]} END").alias(name)
        for text, (name, _) in zip(request.order_by, _order(request), strict=True)
    ]


def _order(request: LoadRequest) -> list[tuple[str, bool]]:
    return [(f"{_ORDER}{number}", _split(text)[1]) for number, text in enumerate(request.order_by)]


def _split(text: str) -> tuple[str, bool]:
    """An expression, and whether it is to fall."""
    found = _DIRECTION.fullmatch(text)
    return (found["expression"], found["direction"].lower() == "desc") if found else (text, False)
