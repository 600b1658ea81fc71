"""The same on Spark Connect: route, write, refusal, read and views through a remote session."""

from zlib import crc32

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from spark_cas import bootstrap, error_from_text, open_log, route
from spark_cas.core.errors import ConflictError, LogNotFoundError, OptionError

# A Connect session starts Python workers of its own, which takes a while on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_route_write_read_and_refusal_on_connect(connect, path):
    df = connect.range(40).select(
        sf.expr("IF(id < 5, NULL, concat('N', id % 7))").alias("key"), sf.col("id").cast("string").alias("value")
    )
    options = {"path": path, "partitions": 2, "job": "load-1"}
    routed = route(df, options)
    assert routed.schema["partition"].metadata == {
        "spark_cas": {"partitions": 2, "sorted": 1, "partitioner": "murmur2"}
    }
    routed.write.format("conditional-log").mode("append").options(**options).save()
    assert connect.read.format("conditional-log").load(path).count() == 40
    found = bootstrap(connect, path)
    assert (found.records.count(), found.state.count(), found.offsets.count()) == (40, 7, 2)
    with pytest.raises(Exception, match="CONFLICT") as caught:
        routed.write.format("conditional-log").mode("append").option("expectedOffsets", '{"0": 1, "1": 1}').save(path)
    assert isinstance(error_from_text(str(caught.value)), ConflictError)
    with pytest.raises(LogNotFoundError):
        route(df, path + "-missing")


def test_in_foreach_batch_on_connect_a_batch_is_a_load_of_its_own(connect, path, tmp_path):
    """Spark tells the writes of such a function nothing of their query, so none can be part of it."""
    numbers = str(tmp_path / "numbers")
    connect.range(20).write.parquet(numbers)
    stream = connect.readStream.schema("id BIGINT").parquet(numbers)
    rows = stream.selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")

    def run(checkpoint, options_of):
        def append(batch, number):
            options = {"path": path, "partitions": 2, **options_of(number)}
            route(batch, options).write.format("conditional-log").mode("append").options(**options).save()

        writer = rows.writeStream.foreachBatch(append).option("checkpointLocation", str(tmp_path / checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(200)

    with pytest.raises(StreamingQueryException, match=r"not with Spark Connect\. Nothing was appended"):
        run("refused", lambda number: {"job": "load", "batchId": number})
    run("loads", lambda number: {"job": f"load-{number}"})
    assert connect.read.format("conditional-log").load(path).count() == 20


def test_on_connect_rows_go_where_the_recorded_partitioner_puts_them(connect, path):
    with open_log(path) as log:
        log.create(4, "crc32")
    keys = [f"N{number}" for number in range(40)]
    df = connect.createDataFrame([(key, "value") for key in keys], "key string, value string")
    found = route(df, {"path": path, "job": "load"}).select("key", "partition").collect()
    assert {row.key: row.partition for row in found} == {key: crc32(key.encode()) % 4 for key in keys}
    with pytest.raises(OptionError):
        route(df, {"path": path, "job": "load", "partitioner": "murmur2"})
