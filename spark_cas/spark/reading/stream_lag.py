"""The lag of a streaming read, from Spark's progress of its source."""

from collections.abc import Mapping
from typing import Any

from spark_cas.options.topic_partitions import TopicPartition
from spark_cas.spark.reading.stream_offsets import StreamOffsets
from spark_cas.spark.versions import HAS_READ_LIMITS, progress_offset


def stream_lag(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the offsets between the end of a batch and the newest offset, for each partition.

    On a topic, the numbers include transaction markers.

    Args:
        source: Spark's progress of the source; its offsets are text of `StreamOffsets`.

    Returns:
        The numbers. They are empty if Spark did not report both offsets: before 4.2, its newest offset is the end of
            the batch.

    Raises:
        FormatError: The source is not a log.
        ValueError, SyntaxError: The offsets are not JSON.
    """
    end, latest = (progress_offset(source[name]) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None or not HAS_READ_LIMITS:
        return {}
    read = StreamOffsets.from_json(end).by_partition()
    newest = StreamOffsets.from_json(latest).by_partition()
    return {at: max(0, offset - read.get(at, 0)) for at, offset in sorted(newest.items())}
