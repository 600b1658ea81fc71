"""The daemon of Spark's Python workers, in which spark_cas does not find Spark's stream.

A Spark with another kind of worker hides it too: writes must be correct there.
"""

from pyspark import daemon

from spark_cas.spark import input_stream
from spark_cas.spark.accelerators import quick_ack
from spark_cas.spark.writing import end_of_stream


def _no_stream() -> None:
    return None


if __name__ == "__main__":
    for module in (input_stream, quick_ack, end_of_stream):
        module.stream_from_jvm = _no_stream  # type: ignore[attr-defined]
    daemon.manager()
