"""The daemon of Spark's Python workers, in which spark_cas does not find Spark's stream.

A Spark with another kind of worker hides it too: writes must be correct there.
"""

from pyspark import daemon

from spark_cas.spark.accelerators import input_stream, quick_ack


def _no_stream() -> None:
    return None


if __name__ == "__main__":
    for module in (input_stream, quick_ack):
        module.stream_from_jvm = _no_stream  # type: ignore[attr-defined]
    daemon.manager()
