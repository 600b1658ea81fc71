"""Differences between pyspark 4.0, 4.1, 4.2 and 4.3. Only this module adapts to a version.

It detects each difference by a name that a version has or lacks, not by the version number. Platforms such as
Databricks add parts of later versions to theirs.
"""

import ast
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.types import DataType, StructType
from pyspark.sql.utils import is_remote

from spark_cas.core.errors import OptionError, SparkSetupError
from spark_cas.spark.plain_errors import called_by_spark, in_worker, run_as
from spark_cas.spark.supported import NEWEST, SUPPORTED, number_of

try:  # 4.1
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef, misc]
        DataSourceStreamWriter, DataSourceArrowWriter
    ):
        """Spark 4.0 passes Arrow batches to each writer of the second class, also in a stream."""


try:  # 4.1
    from pyspark.sql.types import TimeType
except ImportError:

    class TimeType(DataType):  # type: ignore[no-redef]
        """Spark has no type TIME."""


try:  # 4.2
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
except ImportError:
    HAS_READ_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """The maximum or minimum size of a micro-batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """No limit."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most ``max_rows`` records."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """At least ``min_rows`` records."""

        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark does not report its trigger."""


if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from spark_cas.spark.reading.stream_read import RecordsStreamReader

# Names of pyspark that other modules import from here.
__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "TimeType",
]

PYSPARK = f"pyspark {pyspark.__version__}"
"""The name and version for an error."""
_HAS_TIMEZONE = "timezone" in inspect.signature(to_arrow_schema).parameters
_HAS_JSON_OF_ROWS = "DataFrame" in str(inspect.signature(DataFrameReader.json).parameters["path"].annotation)
_HASH_SEED = 42
_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"
_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
_COMMITS = "pyspark.sql.worker.python_streaming_sink_runner"

if number_of(pyspark.__version__) > NEWEST and not in_worker():
    warnings.warn(f"{PYSPARK} is not tested. Tests of spark_cas run on pyspark {SUPPORTED}.", stacklevel=2)


def only_commits() -> bool:
    """Return whether Spark (4.2) runs this process only to commit micro-batches."""
    return _COMMITS in sys.modules or run_as() == _COMMITS


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of rows that a source sends to Spark, with timestamps in UTC."""
    # Before 4.2, timestamps are always in UTC.
    return to_arrow_schema(schema, timezone="UTC") if _HAS_TIMEZONE else to_arrow_schema(schema)


def binary_function(function: Callable[[pa.Array], pa.Array], result: DataType) -> "Callable[[Column], Column]":
    """Return a function of Spark's columns that applies ``function`` to batches of one binary column."""
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:
        import pandas as pd
        from pyspark.sql.pandas.functions import pandas_udf

        def of_series(series: pd.Series) -> pd.Series:
            return function(pa.array(series, pa.binary())).to_pandas()

        return pandas_udf(of_series, result)  # type: ignore[call-overload, no-any-return, unused-ignore]
    # Spark takes the kind of function from type hints; its stub requires an argument, with which it warns.
    return arrow_udf(function, result)  # type: ignore[call-overload, no-any-return]


def parse_json(reader: DataFrameReader, texts: "DataFrame") -> "DataFrame":
    """Parse the JSON documents in the only column of a frame. Before 4.2, Spark Connect cannot do this."""
    if _HAS_JSON_OF_ROWS:
        return reader.json(texts)
    if is_remote():
        raise SparkSetupError(
            f"{PYSPARK} does not infer the columns of JSON documents on Spark Connect. Nothing was appended. Use a "
            f"classic session, or pyspark 4.2 or newer."
        )
    return reader.json(texts.rdd.map(itemgetter(0)))


def register(spark: "SparkSession", source: type[DataSource]) -> None:
    """Register a data source, even if Spark has already found it by its name."""
    try:
        spark.dataSource.register(source)
    except Exception as error:
        if _KNOWN not in str(error):  # 4.0
            raise


def to_numbered_tasks(rows: "DataFrame", tasks: int, number: "Column") -> "DataFrame":
    """Return the rows, each in the task whose number is that of a column modulo ``tasks``."""
    if hasattr(rows, "repartitionById"):  # 4.1
        return rows.repartitionById(tasks, number)
    return _by_hash(rows, tasks, number)


def _by_hash(rows: "DataFrame", tasks: int, number: "Column") -> "DataFrame":
    hashed = sf.array(*(sf.lit(each) for each in _ints_by_task(tasks)))
    return rows.repartition(tasks, sf.get(hashed, sf.pmod(number, sf.lit(tasks))))


def _ints_by_task(tasks: int) -> list[int]:
    """Return an int for each task. `DataFrame.repartition` sends a row with it to that task, by Spark's `hash`."""
    result: dict[int, int] = {}
    start = 0
    while len(result) < tasks:
        ints = np.arange(start, start + 4 * tasks, dtype=np.uint32)
        start += len(ints)
        for each, task in zip(ints.tolist(), (_hash_of(ints) % tasks).tolist(), strict=True):
            result.setdefault(task, each)
    return [result[task] for task in range(tasks)]


def _hash_of(ints: np.ndarray) -> np.ndarray:
    """Return Spark's `hash` of each int: 32 bits of MurmurHash3."""
    mixed = _rotated(ints * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    state = _rotated(np.uint32(_HASH_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(4)  # bytes of an int
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (state ^ (state >> np.uint32(16))).view(np.int32)


def _rotated(words: np.ndarray, bits: int) -> np.ndarray:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def stream_reader(reader: "RecordsStreamReader", *, by_time: bool) -> DataSourceStreamReader:
    """Return a streaming reader for the present version of Spark, from one that takes a start and a limit.

    Raises OptionError for limits if Spark has none (4.0 and 4.1), unless ``by_time``: the user states that the query
    has a processing-time trigger. Spark does not report the trigger, and a query with Trigger.AvailableNow would end
    after its first batch, with unread records.
    """
    if HAS_READ_LIMITS:
        return reader
    if not by_time and not isinstance(reader.getDefaultReadLimit(), ReadAllAvailable):
        raise OptionError(
            f"{PYSPARK} does not report the trigger of a query, so maxOffsetsPerTrigger and "
            f"minOffsetsPerTrigger could leave records unread. If the query has a processing-time trigger, add "
            f"processingTime=true. Otherwise remove these limits, or use pyspark 4.2 or newer."
        )
    return _WithPosition(reader)


def progress_offset(text: str | None) -> dict[str, Any] | None:
    """Return an offset in the progress of a query: JSON, and before 4.2 the text of a dict."""
    try:
        result = json.loads(text or "null")
    except ValueError:
        result = ast.literal_eval(text or "None")
    return result  # type: ignore[no-any-return]


def newest_offset(source: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the newest offset in the progress of a source.

    None if Spark did not report it. Before 4.2, the offset under this name is the end of the batch.
    """
    return progress_offset(source["latestOffset"]) if HAS_READ_LIMITS else None


def start_for_existing_records(writer: "DataStreamWriter") -> "tuple[StreamingQuery, Callable[[], bool]]":
    """Start a query that reads the existing records in several micro-batches. Its source has ``processingTime=true``.

    Before 4.2, Trigger.AvailableNow reads them in one micro-batch. There the query has a processing-time trigger, and
    ends when Spark finds no new record. It also reads new records, and does not wait for open transactions.

    Returns:
        The query, and a function that returns whether the caller must stop it, because it has read all records. The
        function raises the error of a query that failed.
    """
    if HAS_READ_LIMITS:
        return writer.trigger(availableNow=True).start(), lambda: False
    query = writer.start()
    pool = ThreadPoolExecutor(1)
    read = pool.submit(query.processAllAvailable)
    pool.shutdown(wait=False)
    return query, lambda: read.done() and read.result() is None


@called_by_spark
class _WithPosition(DataSourceStreamReader):
    """Keeps the position of the stream: before 4.2 Spark passes none when it requests the latest offset.

    A new query requests the latest offset, then the initial one, then the partitions of the first batch. A restarted
    query requests the (empty) partitions at its position first.
    """

    def __init__(self, reader: "RecordsStreamReader") -> None:
        self._reader = reader
        self._first: dict[str, Any] | None = None
        """The initial offset of a new query: it is requested more than once."""
        self._position: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        if self._first is None:
            self._first = self._reader.initialOffset()
        return self._first

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        position = self.initialOffset() if self._position is None else self._position
        return self._reader.latestOffset(position, self._reader.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if self._position is None and self._first is not None and start != self._first:
            raise SparkSetupError(
                f"Spark requested new records before it reported the position of the restarted query. It appends no "
                f"batch. Set {_WRAPPER} to false, and restart the query."
            )
        self._position = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
