"""Reads and streams by time return the same rows from a topic with transaction markers as from a directory."""

import datetime as dt
import json
import time

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from spark_cas import append_once, error_from_text, open_log
from spark_cas.core.errors import OptionError
from spark_cas.core.outcome import Appended
from spark_cas.core.records import RECORDS
from tests.long import full
from tests.spark.addresses import EMBEDDED_AND_KAFKA, KAFKA, new_log
from tests.spark.streams import Stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TIME_MS = 1_589_718_600_250
TODAY_MS = round(time.time() * 1000) - 3_600_000
CHUNKS = {0: [[0, 1], [2, 9], [3]], 1: [[4, 5], [6]]}
"""Milliseconds after TIME_MS, by partition and chunk. They are also the values of the records."""


def append(log, partition, job, numbers, first_ms=TIME_MS):
    rows = [
        {"value": str(each).encode(), "timestamp": dt.datetime.fromtimestamp((first_ms + each) / 1000, dt.UTC)}
        for each in numbers
    ]
    records = pa.Table.from_pylist(rows, RECORDS)
    assert isinstance(append_once(log, partition, records, job=job, expected_offset=None), Appended)


@pytest.fixture(params=EMBEDDED_AND_KAFKA)
def address(request, path):
    """The address of a log with old records, on each backend."""
    address = new_log(request, path, 2)
    with open_log(address) as log:
        for partition, chunks in CHUNKS.items():
            for number, chunk in enumerate(chunks):
                append(log, partition, f"{partition}-{number}", chunk)
    return address


@pytest.fixture
def values(spark, address):
    def values(**options):
        frame = spark.read.format("conditional-log").options(**options).load(address)
        return sorted(int(row.value) for row in frame.selectExpr("string(value) value").collect())

    return values


def at(after):
    return str(TIME_MS + after)


LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


def test_a_batch_reads_the_records_of_a_time(values, address):
    everything = sorted(each for chunks in CHUNKS.values() for chunk in chunks for each in chunk)
    assert values(endingTimestamp=str(TODAY_MS)) == everything
    assert values(endingTimestamp=at(10)) == everything
    assert values(endingTimestamp=at(5)) == [0, 1, 2, 4]
    assert values(startingTimestamp=at(0), endingTimestamp=str(TODAY_MS)) == everything
    assert values(startingTimestamp=at(5)) == [3, 5, 6, 9]
    assert values(startingTimestamp=at(5), endingTimestamp=at(6)) == [5]
    for late in (at(10), str(TODAY_MS)):
        assert values(startingTimestamp=late, **LATEST) == []
        with pytest.raises(PySparkException) as caught:
            values(startingTimestamp=late)
        assert isinstance(error_from_text(str(caught.value)), OptionError)
    each = json.dumps({address.rpartition("/")[2]: {"0": TODAY_MS, "1": TIME_MS + 6}})
    assert values(endingOffsetsByTimestamp=each) == [0, 1, 2, 3, 4, 5, 9]
    assert values(startingOffsetsByTimestamp=each, **LATEST) == [6]


@pytest.mark.parametrize("address", [KAFKA, *full("embedded")], indirect=True)
def test_a_stream_starts_at_the_records_of_a_time(spark, tmp_path, address):

    def stream(folder, **more):
        return Stream(spark, tmp_path / folder, path=address, **more)

    stream("refused", startingTimestamp=at(10)).refused(OptionError)
    middle = stream("middle", startingTimestamp=at(5))
    latest = stream("latest", startingTimestamp=str(TODAY_MS), **LATEST)
    assert (sum(middle.run()), sum(latest.run())) == (4, 0)
    with open_log(address) as log:
        append(log, 0, "later", [7])
        append(log, 1, "new", [8], TODAY_MS)
    assert (sum(middle.run()), sum(latest.run())) == (2, 2)
    assert [int(each) for each in middle.values()] == [3, 5, 6, 7, 8, 9]
    assert [int(each) for each in latest.values()] == [7, 8]
    new = stream("new", startingTimestamp=str(TODAY_MS + 8), **LATEST)
    assert sum(new.run()) == 1
    assert new.values() == ["8"]
