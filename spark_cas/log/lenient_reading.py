"""Read records with headers that cannot be decoded, for readers that need only the other columns."""

from collections.abc import Iterator

import pyarrow as pa

from spark_cas.core.errors import UnreadableRecordError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.protocol import Log


def read_leniently(
    log: Log, partition: int, offsets: OffsetRange, columns: tuple[str, ...]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield as `Log.read` does, with a record whose headers cannot be read alone and without the column ``headers``.

    Raises the errors of `Log.read` except UnreadableRecordError.
    """
    without_headers = tuple(name for name in columns if name != "headers")
    next_offset, end_offset = offsets.base_offset, offsets.end_offset
    while next_offset < end_offset:
        try:
            for base_offset, records in log.read(partition, OffsetRange(next_offset, end_offset), columns):
                yield base_offset, records
                next_offset = base_offset + records.num_rows
        except UnreadableRecordError as error:
            if error.offset is None:
                raise
            yield from log.read(partition, OffsetRange(next_offset, error.offset), columns)
            next_offset = error.offset + 1
            yield from log.read(partition, OffsetRange(error.offset, next_offset), without_headers)
        else:
            return
