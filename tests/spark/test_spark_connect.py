"""The same on Spark Connect: route, write, refusal, read and views through a remote session."""

import pytest
from pyspark.sql import functions as F

from spark_cas import error_from_text, route
from spark_cas.core.errors import ConflictError, LogNotFoundError, NotRoutedError

pytestmark = pytest.mark.spark


def test_route_write_read_and_refusal_on_connect(connect, path):
    df = connect.range(40).select(
        F.expr("IF(id < 5, NULL, concat('N', id % 7))").alias("key"), F.col("id").cast("string").alias("value")
    )
    options = {"path": path, "partitions": 2, "job": "load-1"}
    for _ in range(2):
        routed = route(df, options)
        assert routed.schema["partition"].metadata == {"spark_cas": {"partitions": 2, "layout_epoch": 0}}
        routed.write.format("conditional-log").mode("append").options(**options).save()
        assert connect.read.format("conditional-log").load(path).count() == 40
    with pytest.raises(Exception) as caught:
        route(df, path).write.format("conditional-log").mode("append").option(
            "expectedOffsets", '{"0": 1, "1": 1}'
        ).save(path)
    assert isinstance(error_from_text(str(caught.value)), ConflictError)
    with pytest.raises(Exception) as caught:
        df.write.format("conditional-log").mode("append").save(path)
    assert isinstance(error_from_text(str(caught.value)), NotRoutedError)
    with pytest.raises(LogNotFoundError):
        route(df, path + "-missing")
    ends = connect.read.format("conditional-log").option("view", "offsets").load(path).select("end_offset")
    assert sum(row.end_offset for row in ends.collect()) == 40
