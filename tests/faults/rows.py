"""Input rows of jobs, and the rows that each partition of a log must hold in order, computed without Spark."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_cas.core.partitioner import partition_of
from spark_cas.core.records import RECORDS

Row = tuple[bytes, bytes]
"""Key and value."""

PARTITIONS = 4
CHUNK = 200
"""Records per chunk. Each partition of `make_rows` gets several chunks."""

_FILES = 4


def make_rows(count: int = 3200, tag: str = "row") -> list[Row]:
    """Return rows over a few hundred keys, most keys with several rows."""
    return [(f"key-{at % 307}".encode(), f"{tag}-{at:06d}".encode()) for at in range(count)]


def write_input(folder: Path, rows: Sequence[Row]) -> str:
    """Write the rows to several Parquet files, so that several tasks read them. Return the folder."""
    folder.mkdir()
    for number in range(_FILES):
        part = rows[number::_FILES]
        columns = {"key": [key for key, _ in part], "value": [value for _, value in part]}
        schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
        pq.write_table(pa.table(columns, schema), folder / f"part-{number}.parquet")
    return str(folder)


def routed(rows: Sequence[Row], partitions: int = PARTITIONS) -> dict[int, list[Row]]:
    """Return the rows of each partition in the order that `route` gives them: by key, then value."""
    placed: dict[int, list[Row]] = {partition: [] for partition in range(partitions)}
    for row, partition in zip(rows, partition_of(as_records(rows), partitions).to_pylist(), strict=True):
        placed[partition].append(row)
    return {partition: sorted(found) for partition, found in placed.items()}


def as_records(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"key": key, "value": value} for key, value in rows], schema=RECORDS)
