"""Kafka's partitioners in Spark's JVM, so that no row is sent to Python (decision 0013).

Spark SQL has `crc32`, but not Kafka's murmur2; its `hash` is another function. Apache Commons Codec, a dependency of
Spark, has murmur2 with Kafka's seed. `StaticInvoke` calls it, the expression with which Spark's Datasets call Java
methods.

Saves: the transfer of each key to Python and back. Rows `route` and `kafka-copy`, partition by key, of
docs/performance.md.
Public path: a function in Python (`spark_cas.spark.writing.partition_by_key`).
Tested: pyspark 4.0 to 4.3. `JvmHash.of` compares the hash of a few keys once per context.
"""

from functools import reduce
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType

from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, partition_of_key
from spark_cas.log.log_lines import log_unused
from spark_cas.spark.jvm import JavaObject, java_column, jvm_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_HASH = ("org.apache.commons.codec.digest.MurmurHash2", "hash32")
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils"
_TRIED = (b"", b"\x80", b"\xff\x80", b"\xff\x80\xfe", b"\xff\xfe\xfd\xfc", b"a longer key")
_MOST_PARTITIONS = 2**31 - 1

_tried: "WeakKeyDictionary[SparkContext, JvmHash | None]" = WeakKeyDictionary()
"""The result of `JvmHash.of` by context. The JVM of a context does not change."""


class JvmHash:
    """Hashes columns in the JVM of a classic session."""

    def __init__(self, jvm: JavaObject) -> None:
        self._jvm = jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        self._columns = reduce(getattr, _COLUMNS.split("."), jvm)
        self._int = _the(jvm.org.apache.spark.sql.types, "IntegerType")

    @classmethod
    def of(cls, spark: "SparkSession") -> "JvmHash | None":
        """Return the hash of a session. None on Spark Connect, and if its JVM has no hash or a different one."""
        jvm = jvm_of(spark)
        if jvm is None:
            log_unused("jvm_hash", "Spark Connect does not show the JVM")
            return None
        context = spark.sparkContext
        if context not in _tried:
            _tried[context] = cls._try(jvm)
        if _tried[context] is None:
            log_unused("jvm_hash", "this JVM has no murmur2 of Kafka, or hashes otherwise")
        return _tried[context]

    @classmethod
    def _try(cls, jvm: JavaObject) -> Self | None:
        # A client for Spark Connect only is installed without py4j.
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        try:
            result = cls(jvm)
            return result if result._hashes_as_kafka() else None
        except (Py4JError, PySparkException, TypeError):
            # py4j treats a name that the JVM does not know as a package. Calling it raises TypeError.
            return None

    def partition_of(self, keys: Column, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Column:
        """Return the partition of each binary key as an int, as `partition_of_key` does."""
        if partitioner == "crc32":
            return (sf.crc32(keys) % sf.lit(partitions)).cast(IntegerType())
        values = [self._columns.expression(java_column(each)) for each in (keys, sf.length(keys))]
        hashed = Column(self._columns.column(self._call(values)))
        return hashed.bitwiseAND(sf.lit(0x7FFFFFFF)) % sf.lit(partitions)

    def _call(self, values: list[JavaObject]) -> JavaObject:
        of, name = _HASH
        jvm = self._jvm
        null_for_a_null = may_be_null = deterministic = True
        return self._catalyst.objects.StaticInvoke(
            jvm.java.lang.Class.forName(of),
            self._int,
            name,
            jvm.PythonUtils.toSeq(values),
            jvm.PythonUtils.toSeq([]),  # no casts of the arguments
            null_for_a_null,
            may_be_null,
            deterministic,
            _the(jvm.scala, "None"),
        )

    def _hashes_as_kafka(self) -> bool:
        # An expression of a column cannot be evaluated here. Creating one checks that the API exists.
        self.partition_of(sf.lit(b""), 1)
        literal = _the(self._catalyst, "Literal")
        for key in _TRIED:
            hashed = self._call([literal.apply(key), literal.apply(len(key))]).eval(None)
            if (hashed & 0x7FFFFFFF) % _MOST_PARTITIONS != partition_of_key(key, _MOST_PARTITIONS):
                return False
        return True


def _the(package: JavaObject, name: str) -> JavaObject:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
