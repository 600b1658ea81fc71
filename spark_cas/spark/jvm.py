"""The JVM of a classic session. Only this module uses the attributes of pyspark that lead to it.

pyspark has no public function for this. On Spark Connect there is no JVM: use these functions only after `jvm_of` has
returned one.
"""

# ruff: noqa: SLF001 - see above

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, SparkSession

JavaObject: TypeAlias = Any
"""py4j has no types."""


def jvm_of(spark: "SparkSession") -> JavaObject | None:
    """Return the JVM of a session, or None on Spark Connect."""
    return getattr(spark, "_jvm", None)


def java_session(spark: "SparkSession") -> JavaObject:
    """Return the session as an object of the JVM."""
    return spark._jsparkSession


def java_context(context: "SparkContext") -> JavaObject:
    """Return the context as an object of the JVM."""
    return context._jsc.sc()


def java_column(column: "Column") -> JavaObject:
    """Return the column as an object of the JVM."""
    return column._jc


def jvm_before_session() -> JavaObject:
    """Return the JVM of spark-submit. Start a JVM if there is none."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    return SparkContext._jvm
