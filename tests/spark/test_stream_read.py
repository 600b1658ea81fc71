"""The streaming source on a log in a directory, in real queries."""

import json
import shutil
import time

import pytest
from pyspark.errors import PySparkException

from spark_cas import error_from_text, open_log
from spark_cas.core.errors import OptionError, TrimmedError, TruncatedError
from spark_cas.log.expanding import expand_log
from spark_cas.spark.versions import HAS_READ_LIMITS, progress_offset
from tests.spark.streams import SECONDS, Stream
from tests.support.writing import append_foreign

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def stream(spark, path, tmp_path, log):
    return Stream(spark, tmp_path / "query", path=path, startingOffsets="earliest")


def test_a_stream_reads_each_record_once_through_limits_and_restarts(stream, log):
    append_foreign(log, 0, *"abcdefg")
    append_foreign(log, 1, *"hij")
    assert stream.run(maxOffsetsPerTrigger=4) == [4, 4, 2]
    assert stream.values() == [*"abcdefghij"]
    (topic,) = stream.offsets()[0]
    assert topic == "flights"
    last = stream.offsets()[-1]["flights"]
    assert last == {"log_id": log.layout().log_id, "layout_epoch": 0, "offsets": {"0": 7, "1": 3}}

    assert stream.run() == []
    append_foreign(log, 1, *"kl")
    # With availableNow, the minimum does not hold back the last records. Spark has no limits for it before 4.2.
    minimum = {"minOffsetsPerTrigger": 100} if HAS_READ_LIMITS else {}
    assert stream.run(**minimum, maxOffsetsPerTrigger=200, minPartitions=2) == [2]
    assert stream.values() == [*"abcdefghijkl"]
    with stream.running() as query:
        append_foreign(log, 0, *"mn")
        query.processAllAvailable()
        progress = query.lastProgress["sources"][0]
        newest = progress["latestOffset" if HAS_READ_LIMITS else "endOffset"]
        assert (progress_offset(newest) or {})["flights"]["offsets"] == {"0": 9, "1": 5}
    append_foreign(log, 0, *"op")
    assert stream.run() == [2]
    assert stream.values() == [*"abcdefghijklmnop"]


def test_stream_of_1000_partitions_resumes(spark, path, tmp_path):
    with open_log(path) as log:
        log.create(1000)
        stream = Stream(spark, tmp_path / "query", path=path, startingOffsets="earliest")
        append_foreign(log, 0, *"ab")
        append_foreign(log, 999, *"c")
        assert stream.run() == [3]
        append_foreign(log, 500, *"de")
        append_foreign(log, 999, *"f")
        assert stream.run() == [3]
        assert stream.run() == []
    assert stream.values() == [*"abcdef"]
    ends = stream.offsets()[-1]["flights"]["offsets"]
    assert len(ends) == 1000
    assert {partition: end for partition, end in ends.items() if end} == {"0": 2, "500": 2, "999": 2}


def test_a_limit_below_the_number_of_partitions_starves_none(stream, log):
    append_foreign(log, 0, *"abcd")
    append_foreign(log, 1, *"xy")
    assert stream.run(maxOffsetsPerTrigger=1) == [1] * 6
    ends = [each["flights"]["offsets"] for each in stream.offsets()]
    assert [(each["0"], each["1"]) for each in ends] == [(1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (4, 2)]


@pytest.mark.full
@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark reports no latest offset before 4.2; see test_versions.py")
def test_few_records_wait_for_more_up_to_the_delay(stream, log):
    with stream.running(minOffsetsPerTrigger=3, maxTriggerDelay="1h") as query:
        query.processAllAvailable()
        append_foreign(log, 0, *"ab")
        while json.loads(query.lastProgress["sources"][0]["latestOffset"])["flights"]["offsets"]["0"] < 2:
            assert query.isActive
            time.sleep(0.1)
        assert stream.values() == []
        append_foreign(log, 1, *"c")
        query.processAllAvailable()
        assert stream.values() == [*"abc"]


def test_records_during_a_failed_first_batch_are_read(spark, path, tmp_path, log):
    """Spark does not record the start of a stream that begins at the latest offsets."""
    append_foreign(log, 0, *"ab")
    query = Stream(spark, tmp_path / "query", path=path)  # startingOffsets is latest for a stream

    def fail(frame, _):
        raise RuntimeError("the driver dies in the first batch")

    read = spark.readStream.format("conditional-log").option("path", path).load()
    writer = read.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "query" / "checkpoint"))
    dying = writer.start()
    with pytest.raises(PySparkException, match="the driver dies"):
        dying.awaitTermination(SECONDS)
    append_foreign(log, 0, *"cd")
    append_foreign(log, 1, *"e")
    query.run()
    assert query.values() == [*"cde"]


@pytest.mark.full
def test_query_resumes_its_first_batch_after_an_expansion(spark, path, tmp_path, log):
    append_foreign(log, 0, *"abc")
    query = Stream(spark, tmp_path / "query", path=path, startingOffsets='{"flights": {"0": 1, "1": 0}}')
    assert query.run() == [2]
    # Simulate a driver that died before the sink and the checkpoint recorded the batch.
    for folder in ("checkpoint/commits", "rows"):
        shutil.rmtree(tmp_path / "query" / folder)
    expand_log(log, 4)
    append_foreign(log, 3, "d")
    assert query.run() == [2, 1]
    assert query.values() == [*"bcd"]


def test_records_removed_by_retention(stream, log):
    for values in ("ab", "cd", "ef"):
        append_foreign(log, 0, *values)
    stream.run()
    assert stream.values() == [*"abcdef"]
    for values in ("gh", "ij", "kl"):
        append_foreign(log, 0, *values)
    log.trim(0, 10)
    assert "offsets 6 to 9" in stream.refused(TrimmedError)
    assert stream.values() == [*"abcdef"]
    assert stream.run(failOnDataLoss="false", maxOffsetsPerTrigger=1) == [1, 1]
    assert stream.values() == [*"abcdefkl"]


def test_another_log_at_the_same_address_is_reported(stream, log, path):
    append_foreign(log, 0, *"ab")
    stream.run()
    shutil.rmtree(path)
    with open_log(path) as other:
        other.create(2)
        append_foreign(other, 0, *"cdef")
    assert "deleted and recreated" in stream.refused(TruncatedError)
    assert "deleted and recreated" in stream.refused(TruncatedError, failOnDataLoss="false")
    assert stream.values() == [*"ab"]


def test_planned_batch_keeps_its_range(stream, log):
    append_foreign(log, 0, *"abcd")
    assert stream.run(maxOffsetsPerTrigger=2) == [2, 2]
    # Simulate a driver that died before the sink and the checkpoint recorded the last batch.
    for file in ("checkpoint/commits/1", "checkpoint/commits/.1.crc", "rows/_spark_metadata/1"):
        (stream.folder / file).unlink()
    (stream.folder / "rows/_spark_metadata/.1.crc").unlink()
    append_foreign(log, 0, *"efg")
    assert stream.run() == [2, 3]
    assert stream.values() == [*"abcdefg"]


@pytest.mark.full
def test_options_that_a_stream_does_not_take(spark, path, log, tmp_path):
    def refused(**options):
        query = Stream(spark, tmp_path / "refused", path=path, **options)
        with pytest.raises(PySparkException) as caught:
            query.run()
        error = error_from_text(str(caught.value))
        assert isinstance(error, OptionError), str(caught.value)
        return error.message

    assert "endingOffsets is one of read, not of readStream" in refused(endingOffsets="latest")
    assert "above maxOffsetsPerTrigger" in refused(minOffsetsPerTrigger="2", maxOffsetsPerTrigger="1")
    assert "must name each partition" in refused(startingOffsets='{"flights": {"0": 0}}')
