"""Helpers that run streaming queries on logs and inspect their micro-batches."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from spark_cas import error_from_text
from spark_cas.spark.versions import start_for_existing_records
from tools.kafka_broker.waiting import wait_until

SECONDS = 120


class Stream:
    """A query that can be stopped and restarted from its checkpoint. It writes each record to Parquet files."""

    def __init__(self, spark, folder, **options):
        self.spark = spark
        self.folder = Path(folder)
        self.options = options

    def query(self, **more):
        """Return the writer of a query from the log to Parquet files. The caller adds the trigger."""
        read = self.spark.readStream.format("conditional-log").options(**{**self.options, **more}).load()
        rows = read.selectExpr("topic", "partition", "offset", "cast(value as string) value")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.option("path", str(self.folder / "rows"))

    def run(self, **more):
        """Read all available records. Return the number of records in each non-empty batch."""
        query, has_read_all = start_for_existing_records(self.query(**{"processingTime": "true", **more}))
        return batches_of(query, has_read_all)

    def refused(self, kind, **more):
        """Run the query, check the type of the error with which it fails, and return its message."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run(**more)
        error = error_from_text(str(caught.value))
        assert error is not None
        assert type(error) is kind, str(caught.value)
        return error.message

    @contextmanager
    def running(self, **more):
        """Run the query during the block."""
        query = self.query(**more).trigger(processingTime="100 milliseconds").start()
        try:
            yield query
        finally:
            query.stop()

    def values(self):
        """Return the values that the query has written so far, sorted."""
        schema = "topic string, partition int, offset bigint, value string"
        rows = self.spark.read.schema(schema).parquet(str(self.folder / "rows")).collect()
        return sorted(row.value for row in rows)

    def offsets(self):
        """Return the offsets that the checkpoint holds for each batch, as the source wrote them."""
        files = [each for each in (self.folder / "checkpoint" / "offsets").iterdir() if each.name.isdigit()]
        files.sort(key=lambda each: int(each.name))
        return [json.loads(file.read_text().splitlines()[2]) for file in files]


def batches_of(query, has_read_all=lambda: False):
    """Wait until a query ends or has read all records. Return the number of records in each non-empty batch."""
    try:
        wait_until(lambda: query.awaitTermination(1) or has_read_all(), SECONDS, lambda: "the query did not end")
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()
