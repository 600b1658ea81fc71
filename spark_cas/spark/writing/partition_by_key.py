"""The partition of each row: by its key, as Kafka's own clients assign it, or without a key by its content."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, IntegerType, LongType, TimestampType

from spark_cas.core.columns import NULL_LENGTH, NULL_TIME_MS
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, partition_of
from spark_cas.spark.input_stream import Acknowledged
from spark_cas.spark.records import as_record_column
from spark_cas.spark.schema import HEADERS
from spark_cas.spark.worker import spare_what_is_imported
from spark_cas.spark.writing.jvm_hash import JvmHash

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def partition_by_key(df: "DataFrame", partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> "Column":
    """Return an int in ``range(partitions)`` for each row of a frame with a column ``key``, text or binary.

    Spark's JVM computes it if it can, otherwise a function in Python. Both return the same as `partition_of`.
    """
    # A key that is never null decides alone; of most columns Spark does not know that.
    rest = _rest_of(df) if df.schema["key"].nullable else None
    jvm_hash = JvmHash.of(df.sparkSession)
    if jvm_hash is None:
        return _in_python(partitions, rest or {}, partitioner)
    key = sf.col("key").cast(BinaryType())
    hashed = key if rest is None else sf.coalesce(key, _content_of(rest, jvm_hash))
    return jvm_hash.partition_of(hashed, partitions, partitioner)


def _rest_of(df: "DataFrame") -> "dict[str, Column]":
    """What says where a row without a key goes, as far as the frame has it."""
    kinds = {"value": BinaryType(), "headers": HEADERS, "timestamp": TimestampType()}
    return {name: sf.col(name).cast(kind) for name, kind in kinds.items() if name in df.columns}


def _content_of(rest: "Mapping[str, Column]", jvm_hash: JvmHash) -> "Column":
    """The content of a row as bytes, as `partition_of` defines it for rows without a key."""

    def framed(part: "Column") -> "Column":
        length = sf.coalesce(sf.octet_length(part), sf.lit(NULL_LENGTH)).cast(LongType())
        return sf.concat(jvm_hash.bytes_of(length), sf.coalesce(part.cast(BinaryType()), sf.lit(b"")))

    def followed_by(headers: "Column", header: "Column") -> "Column":
        return sf.concat(headers, framed(header["key"]), framed(header["value"]))

    time = sf.coalesce(sf.unix_millis(rest.get("timestamp", sf.lit(None))), sf.lit(NULL_TIME_MS))
    parts = [framed(rest.get("value", sf.lit(None).cast(BinaryType()))), jvm_hash.bytes_of(time)]
    if "headers" in rest:
        parts.append(sf.coalesce(sf.aggregate(rest["headers"], sf.lit(b""), followed_by), sf.lit(b"")))
    return sf.concat(*parts)


def _in_python(partitions: int, rest: "Mapping[str, Column]", partitioner: Partitioner) -> "Column":
    key = sf.col("key")
    columns = {"key": key, **{name: sf.when(key.isNull(), column) for name, column in rest.items()}}
    if "headers" in columns:
        # None count as no headers. Spark (4.2) takes time for a null list that grows with the rows in front of it.
        columns["headers"] = sf.coalesce(columns["headers"], sf.array().cast(HEADERS))
    return RowPartitioner(partitions, tuple(columns), partitioner).as_function()(*columns.values())


class RowPartitioner(Acknowledged):
    """Assigns a partition to each record from the columns of these names."""

    def __init__(
        self, partitions: int, names: tuple[str, ...], partitioner: Partitioner = DEFAULT_PARTITIONER
    ) -> None:
        self._partitions = partitions
        self._names = names
        self._partitioner = partitioner

    def of(self, columns: tuple[pa.Array, ...]) -> pa.Array:
        """The partition of each record."""
        named = dict(zip(self._names, columns, strict=True))
        records = pa.RecordBatch.from_pydict({name: as_record_column(column, name) for name, column in named.items()})
        found = partition_of(records, self._partitions, self._partitioner)
        spare_what_is_imported()
        return found

    def as_function(self) -> "Callable[..., Column]":
        """The same as a function of Spark's columns."""

        def partitions_of(*columns: pa.Array) -> pa.Array:
            return self.of(columns)

        # Spark takes the kind of function from these type hints; its stub wants it as an argument, which warns.
        return arrow_udf(partitions_of, IntegerType())  # type: ignore[call-overload, no-any-return]
