"""The same on Spark Connect: route, write, refusal, read and views through a remote session."""

import pytest
from pyspark.sql import functions as sf

from spark_cas import bootstrap, error_from_text, route
from spark_cas.core.errors import ConflictError, LogNotFoundError

# A Connect session starts Python workers of its own, which takes a while on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_route_write_read_and_refusal_on_connect(connect, path):
    df = connect.range(40).select(
        sf.expr("IF(id < 5, NULL, concat('N', id % 7))").alias("key"), sf.col("id").cast("string").alias("value")
    )
    options = {"path": path, "partitions": 2, "job": "load-1"}
    routed = route(df, options)
    assert routed.schema["partition"].metadata == {"spark_cas": {"partitions": 2, "sorted": 1}}
    routed.write.format("conditional-log").mode("append").options(**options).save()
    assert connect.read.format("conditional-log").load(path).count() == 40
    found = bootstrap(connect, path)
    assert (found.records.count(), found.state.count(), found.offsets.count()) == (40, 7, 2)
    with pytest.raises(Exception, match="CONFLICT") as caught:
        routed.write.format("conditional-log").mode("append").option("expectedOffsets", '{"0": 1, "1": 1}').save(path)
    assert isinstance(error_from_text(str(caught.value)), ConflictError)
    with pytest.raises(LogNotFoundError):
        route(df, path + "-missing")
