"""The partition of each row: by its key as Kafka's clients assign it, or by its content if it has no key."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, IntegerType, TimestampType

from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, partition_of
from spark_cas.core.records import NULL_LENGTH, NULL_TIMESTAMP
from spark_cas.spark.accelerators.freezing import freeze_loaded_modules
from spark_cas.spark.accelerators.jvm_hash import JvmHash
from spark_cas.spark.accelerators.quick_ack import Acknowledged
from spark_cas.spark.schema import HEADERS
from spark_cas.spark.versions import binary_function

_HEX_DIGITS = 16
"""Hexadecimal digits of a long."""


def partition_by_key(df: DataFrame, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Column:
    """Return an int in ``range(partitions)`` for each row of a frame with a column ``key``, text or binary.

    Spark's JVM computes it if it can, otherwise a function in Python. Both return the same as `partition_of`.
    """
    hashed = sf.col("key").cast(BinaryType())
    # A key that is never null determines the partition alone. In Spark most columns are nullable.
    if df.schema["key"].nullable:
        hashed = sf.coalesce(hashed, _content_of(df))
    jvm_hash = JvmHash.of(df.sparkSession)
    if jvm_hash is None:
        return RowPartitioner(partitions, partitioner).as_function()(hashed)
    return jvm_hash.partition_of(hashed, partitions, partitioner)


def _content_of(df: DataFrame) -> Column:
    """Return the content of a row as bytes, as `partition_of` defines it for rows without a key."""
    kinds = {"value": BinaryType(), "headers": HEADERS, "timestamp": TimestampType()}
    columns = {name: sf.col(name).cast(kind) for name, kind in kinds.items() if name in df.columns}

    def followed_by(headers: Column, header: Column) -> Column:
        return _joined(headers, _framed(header["key"]), _framed(header["value"]))

    time = sf.coalesce(sf.unix_millis(columns.get("timestamp", sf.lit(None))), sf.lit(NULL_TIMESTAMP))
    parts = [_framed(columns.get("value", sf.lit(None).cast(BinaryType()))), _bytes_of(time)]
    if "headers" in columns:
        parts.append(sf.coalesce(sf.aggregate(columns["headers"], sf.lit(b""), followed_by), sf.lit(b"")))
    return _joined(*parts)


def _framed(part: Column) -> Column:
    length = sf.coalesce(sf.octet_length(part), sf.lit(NULL_LENGTH)).cast("long")
    return _joined(_bytes_of(length), sf.coalesce(part.cast(BinaryType()), sf.lit(b"")))


def _joined(*parts: Column) -> Column:
    # A setting of Spark, concatBinaryAsString, makes text of these bytes. The cast returns the same bytes.
    return sf.concat(*parts).cast(BinaryType())


def _bytes_of(numbers: Column) -> Column:
    """Return the eight bytes of each long, the lowest first."""
    digits = sf.lpad(sf.hex(numbers), _HEX_DIGITS, "0")
    pairs = [sf.substring(digits, at, 2) for at in range(_HEX_DIGITS - 1, 0, -2)]
    return sf.unhex(sf.concat(*pairs))


class RowPartitioner(Acknowledged):
    """Assigns a partition to each row by its key or content, which is never null."""

    def __init__(self, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> None:
        self._partitions = partitions
        self._partitioner = partitioner

    def of(self, keys: pa.Array) -> pa.Array:
        result = partition_of(pa.record_batch({"key": keys}), self._partitions, self._partitioner)
        freeze_loaded_modules()
        return result

    def as_function(self) -> Callable[[Column], Column]:
        """Return `of` as a function of Spark's columns."""

        def partitions_of(keys: pa.Array) -> pa.Array:
            return self.of(keys)

        return binary_function(partitions_of, IntegerType())
