"""Python sources and sinks without any work, compared with Spark's own: the limit for ours.

The log cannot reduce Spark's cost of passing rows to Python and back. These sources and sinks acknowledge the data of
Spark as ours do (`spark_cas.spark.accelerators.quick_ack`), so they do not wait for delayed acknowledgements either.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_micro_batch import BATCHES, ROWS, TOTAL, Copies, median_of, run_batches, told_of
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.rows import KEY_BYTES, VALUE_BYTES
from benchmarks.sizes import PARTITIONS
from benchmarks.writing import discard
from spark_cas.spark.accelerators.input_stream import stream_from_jvm
from spark_cas.spark.accelerators.quick_ack import Acknowledged, acknowledge

_NO_GOAL = "none: the floor"
_BATCH_ROWS = 8_000
"""The batch size of the reader of a log."""


def compare_floors(rows: DataFrame, folder: Path, topics: Topics, scratch: Path, repeats: int) -> list[Result]:
    """Compare a read and a micro-batch of rows that are ready in memory, or are discarded."""
    spark = rows.sparkSession
    spark.dataSource.register(Nothing)
    count = rows.count()
    unplaced = rows.select("key", "value")
    read = spark.read.format("nothing").option("rows", count)
    return [
        compare(
            "floor of a read: rows that are ready / parquet",
            lambda _: discard(read.load()),
            lambda _: discard(unplaced),
            goal=_NO_GOAL,
            scratch=NO_SCRATCH,
            repeats=repeats,
        ),
        _compare_batches(spark, Copies(spark, folder, topics), scratch, repeats),
    ]


def _compare_batches(spark: SparkSession, copies: Copies, scratch: Path, repeats: int) -> Result:
    """Compare micro-batches with one exchange between source and sink, as on the other side."""

    def nothing() -> DataStreamWriter:
        records = spark.readStream.format("nothing").option("rows", ROWS).load()
        return records.repartition(PARTITIONS, "key").writeStream.format("nothing")

    sides: dict[str, Callable[[], DataStreamWriter]] = {"ours": nothing, "peer": lambda: copies.peer(empty=False)}
    found: dict[str, list[dict[str, int]]] = {side: [] for side in sides}
    for turn in range(repeats + 1):
        for side, query in sides.items():
            batches = run_batches(query(), scratch / f"{side}-{turn}")
            if turn:
                found[side] += batches
                print(f"floor of a micro-batch, {side}, {turn} of {repeats}: {told_of(batches)}", flush=True)
    ours, peer = (median_of(found[side], TOTAL) for side in ("ours", "peer"))
    return Result(f"floor of a micro-batch of {ROWS:,} rows", ours, peer, "ms", _NO_GOAL)


class Nothing(DataSource):
    """A source of equal rows, ``rows`` in each read or micro-batch, and a sink that discards its rows."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "key binary, value binary"

    def reader(self, schema: StructType) -> "NothingReader":  # noqa: ARG002
        return NothingReader(int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> "NothingStreamReader":  # noqa: ARG002, N802
        return NothingStreamReader(int(self.options["rows"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "NothingWriter":  # noqa: ARG002, FBT001, N802
        return NothingWriter()


class NothingReader(Acknowledged, DataSourceReader):
    """A reader whose batches are ready."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(each) for each in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        count = min(self.rows // PARTITIONS, _BATCH_ROWS)
        arrays = [pa.array([b"k" * KEY_BYTES] * count), pa.array([b"v" * VALUE_BYTES] * count)]
        batch = pa.record_batch(arrays, names=["key", "value"])
        for _ in range(self.rows // PARTITIONS // max(1, count)):
            yield batch


class NothingStreamReader(NothingReader, DataSourceStreamReader):
    """A stream reader with as many batches as the comparison counts."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: Mapping[str, int], limit: Any) -> dict[str, int]:  # noqa: ANN401, ARG002, N802
        return {"batch": min(BATCHES, start["batch"] + 1)}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[InputPartition]:  # type: ignore[override] # noqa: ARG002
        return super().partitions()


class NothingWriter(DataSourceStreamArrowWriter):
    """A writer that discards all rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        acknowledge(stream_from_jvm())
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
