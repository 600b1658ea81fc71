"""Reject dates and timestamps of ORC files that Spark's reader changes."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - likewise

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.nested_values import inside
from spark_cas.programs.input.text_files import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_UTC = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu"})


def checked_times(spark: "SparkSession", frame: "DataFrame") -> "DataFrame":
    """Add checks to the DataFrame of ORC files. A task fails for a date or timestamp that Spark may have shifted.

    Spark reads the days from 1582-10-05 to 1582-10-14 ten days later. The check rejects the days that these become.

    Raises:
        UsageError: if there are timestamps and the time zone of a JVM is not UTC
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
