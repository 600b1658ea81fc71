"""The lag of a streaming read, from Spark's progress of its source."""

from collections.abc import Mapping
from typing import Any

from spark_cas.options.read_range import TopicPartition
from spark_cas.spark.reading.stream_offsets import StreamOffsets
from spark_cas.spark.versions import newest_offset, progress_offset


def stream_lag(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the offsets between the end of a batch and the newest offset, for each partition.

    On a topic, the numbers include transaction markers.

    Args:
        source: Spark's progress of the source; its offsets are text of `StreamOffsets`.

    Returns:
        The numbers. They are empty if Spark did not report both offsets, as before 4.2.

    Raises:
        FormatError: The source is not a log.
        ValueError, SyntaxError: The offsets are not JSON.
    """
    end, newest = progress_offset(source["endOffset"]), newest_offset(source)
    if end is None or newest is None:
        return {}
    read = StreamOffsets.from_json(end).by_partition()
    ends = StreamOffsets.from_json(newest).by_partition()
    return {at: max(0, offset - read.get(at, 0)) for at, offset in sorted(ends.items())}
