"""Reads through Spark: records, the views, and the columns of a schema."""

import datetime as dt

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import datasource
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_cas import error_from_text, open_log
from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import LogNotFoundError, OptionError, SchemaError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.records import RECORDS
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.spark import schema as columns

pytestmark = pytest.mark.spark

TIME = dt.datetime(2020, 5, 17, 12, 30, 0, 250_000, tzinfo=dt.UTC)
IS_4_0 = not hasattr(DataSourceReader, "pushFilters")
HEADERS = [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]


def load(path, rows, job="load-1", complete=True):
    """Append rows to partition 0 of a log with two partitions, without Spark."""
    records = pa.RecordBatch.from_pylist(rows, schema=RECORDS)
    with open_log(path) as log:
        log.create(2)
        plan = pin_plan(log, job, ExpectedOffsets("end"))
        results = append_rows(log, plan, [(0, records)], task=f"{job}/0", limits=ChunkLimits(max_records=3))
        if complete:
            complete_job(log, plan, results)


@pytest.fixture
def log_path(path):
    rows = [{"key": b"%d" % n, "value": b"v%d" % n, "timestamp": TIME} for n in range(4)]
    load(path, [*rows, {"key": None, "value": None, "headers": HEADERS, "timestamp": TIME}])
    return path


@pytest.fixture
def reader(spark):
    return lambda: spark.read.format("conditional-log")


def refused(kind, read):
    with pytest.raises(PySparkException) as caught:
        read()
    error = error_from_text(str(caught.value))
    assert error is not None
    assert type(error) is kind, str(caught.value)
    return error.message


def test_records_have_the_columns_of_the_kafka_source(spark, reader, log_path):
    read = reader().load(log_path)
    assert read.schema == columns.RECORDS
    rows = [(b"%d" % n, b"v%d" % n, "flights", 0, n, TIME, 0) for n in range(4)]
    expected = spark.createDataFrame([*rows, (None, None, "flights", 0, 4, TIME, 0)], columns.RECORDS)
    assert_df_equality(read.orderBy("offset"), expected)


def test_headers_are_the_last_column_and_survive(reader, log_path):
    read = reader().option("includeHeaders", "true").load(log_path)
    assert read.schema == columns.RECORDS_AND_HEADERS
    found = {row.offset: row.headers for row in read.collect()}
    assert [header.asDict() for header in found[4]] == HEADERS
    assert not found[0]


def test_a_schema_reads_just_its_columns(spark, reader, log_path):
    read = reader().schema("offset bigint, key binary").load(log_path)
    expected = spark.createDataFrame([*((n, b"%d" % n) for n in range(4)), (4, None)], "offset bigint, key binary")
    assert_df_equality(read.orderBy("offset"), expected)


def test_bad_reads_are_refused(reader, log_path, tmp_path):
    assert "type binary" in refused(SchemaError, reader().schema("key string").load(log_path).collect)
    assert "Did you mean offset?" in refused(SchemaError, reader().schema("ofset bigint").load(log_path).collect)
    assert "Did you mean view?" in refused(OptionError, lambda: reader().option("veiw", "x").load(log_path))
    assert "one of records" in refused(OptionError, lambda: reader().option("view", "x").load(log_path))
    assert "one log" in refused(OptionError, lambda: reader().load([log_path, log_path]))
    refused(LogNotFoundError, reader().load(str(tmp_path / "missing")).collect)


def test_one_load_is_bounded_by_one_pin(reader, log_path):
    first = reader().load(log_path)
    limited = reader().option("endingOffsets", '{"flights": {"0": 5, "1": 0}}').load(log_path)
    assert (first.count(), limited.count()) == (5, 5)
    load(log_path, [{"key": b"new", "value": b"x"}], job="load-2")
    assert first.count() == (6 if IS_4_0 else 5), "each action on 4.0 plans its own end offsets"
    assert (limited.count(), reader().load(log_path).count()) == (5, 6)


def offsets_of(read):
    return sorted((row.partition, row.offset) for row in read.collect())


def test_ranges_partitions_and_times_of_a_log(reader, path):
    load(path, [{"key": b"k", "timestamp": TIME + dt.timedelta(seconds=n)} for n in range(7)])  # chunks of 3 records
    assert offsets_of(reader().option("assign", '{"flights": [0]}').load(path)) == [(0, n) for n in range(7)]
    assert reader().option("assign", '{"flights": [1]}').load(path).count() == 0
    refused(OptionError, reader().option("assign", '{"flights": [0, 2]}').load(path).collect)

    def at(seconds):
        return str(int((TIME + dt.timedelta(seconds=seconds)).timestamp() * 1000))

    between = {"startingTimestamp": at(2.5), "startingOffsetsByTimestampStrategy": "latest", "endingTimestamp": at(5)}
    assert offsets_of(reader().options(**between).load(path)) == [(0, 3), (0, 4)]
    one = {"assign": '{"flights": [0]}', "startingTimestamp": at(4)}
    assert offsets_of(reader().options(**one).load(path)) == [(0, n) for n in (4, 5, 6)]
    named = {"startingOffsetsByTimestamp": f'{{"flights": {{"0": {at(6)}, "1": 0}}}}'}
    assert "ms since 1970" in refused(OptionError, reader().options(**named).load(path).collect)
    assert offsets_of(reader().options(**named, startingOffsetsByTimestampStrategy="latest").load(path)) == [(0, 6)]

    split = reader().option("minPartitions", "4").load(path)
    assert (split.rdd.getNumPartitions(), offsets_of(split)) == (4, [(0, n) for n in range(7)])
    split = reader().option("maxRecordsPerPartition", "3").load(path)
    assert (split.rdd.getNumPartitions(), split.count()) == (3, 7)


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_are_right_whether_spark_pushes_them_or_not(spark, reader, path, pushdown):
    load(path, [{"key": b"k", "timestamp": TIME + dt.timedelta(seconds=n)} for n in range(5)])
    switch = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(switch, pushdown)
    try:
        read = reader().load(path)
        late = read.where(sf.col("timestamp") > sf.lit(TIME + dt.timedelta(seconds=2)))
        assert offsets_of(late.where("partition = 0")) == [(0, 3), (0, 4)]
        # One relation is scanned several times. No scan may lose rows to the filter of another scan.
        assert (read.count(), read.where("partition = 1").count(), read.count()) == (5, 0, 5)
        assert read.where("offset < 2").union(read.where("offset = 4")).union(read).count() == 2 + 1 + 5
    finally:
        spark.conf.unset(switch)


class PruningReader(DataSourceReader):
    """A reader that returns only the partition named by a filter."""

    def __init__(self):
        self.wanted = [0, 1]

    def pushFilters(self, filters):  # noqa: N802 - Spark names it
        self.wanted = [each.value for each in filters if isinstance(each, datasource.EqualTo)] or self.wanted
        return filters

    def partitions(self):
        return [InputPartition(each) for each in self.wanted]

    def read(self, partition):
        yield (partition.value,)


class PruningSource(DataSource):
    @classmethod
    def name(cls):
        return "pruning"

    def schema(self):
        return "partition int"

    def reader(self, schema):
        return PruningReader()


@pytest.mark.skipif(IS_4_0, reason="pyspark 4.0 pushes no filters")
def test_spark_reuses_a_pruned_plan(spark):
    """If this test fails, Spark plans each scan separately, and reads can prune: see docs/decisions/0012."""
    switch = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(switch, "true")
    try:
        spark.dataSource.register(PruningSource)
        read = spark.read.format("pruning").load()
        assert (read.count(), read.where("partition = 1").count()) == (2, 1)
        assert read.count() == 1, "Spark plans each scan separately"
    finally:
        spark.conf.unset(switch)


def test_the_view_newest_has_the_newest_record_of_each_key_of_a_partition(reader, path):
    keys = [b"a", b"b", None, b"a", b"c", b"b"]
    load(path, [{"key": key, "value": b"%d" % at} for at, key in enumerate(keys)])
    view = reader().option("view", "newest").load(path)
    assert view.schema == columns.RECORDS
    assert [tuple(row) for row in view.select("key", "offset").collect()] == [
        (None, 2),
        (b"a", 3),
        (b"c", 4),
        (b"b", 5),
    ]
    first = reader().options(view="newest", endingOffsets='{"flights": {"0": 3, "1": 0}}').load(path)
    assert [row.offset for row in first.collect()] == [0, 1, 2]
    without_keys = reader().option("view", "newest").schema("offset bigint").load(path)
    assert [row.offset for row in without_keys.collect()] == [*range(6)]


def test_offsets_view_has_the_expected_offsets_of_the_next_write(spark, reader, log_path):
    view = reader().option("view", "offsets").load(log_path)
    with open_log(log_path) as log:
        nothing: dict[int, int] = {}
        rows = [
            ("flights", each, 0, end, 0, log.layout().log_id, nothing, "murmur2") for each, end in enumerate((5, 0))
        ]
    expected = spark.createDataFrame(rows, columns.OFFSETS)
    assert_df_equality(view, expected)


def test_the_view_of_progress_has_complete_jobs_and_others(spark, reader, log_path):
    load(log_path, [{"key": b"more", "value": b"x"}] * 4, job="load-2", complete=False)
    view = reader().option("view", "progress").load(log_path)
    assert view.schema == columns.PROGRESS
    expected = spark.createDataFrame(
        [("load-1", "flights", 0, 5, 0, 5, 2), ("load-2", "flights", 0, 4, 5, 9, 2)],
        "job string, topic string, partition int, rows bigint, base_offset bigint, end_offset bigint, chunks bigint",
    )
    assert_df_equality(view.select(*expected.columns), expected)
    recent = sf.col("committed_at") > sf.current_timestamp() - sf.expr("INTERVAL 1 HOUR")
    assert view.where(recent & (sf.length("digest") == 32)).count() == 2


def test_progress_view_has_the_appends_of_a_complete_job(spark, reader, log_path):
    load(log_path, [{"key": b"more", "value": b"x"}] * 4, job="load-2", complete=False)
    load(log_path, [{"key": b"more", "value": b"x"}] * 4, job="load-3")
    counts, others = ["resumed_rows", "attempts", "resolved", "aborted_rows"], ["has_offset", "has_timestamp"]
    said = [*counts, "timestamp", *others, "start_offset"]
    first, second, third = (
        row[1:]
        for row in reader().option("view", "progress").load(log_path).select("job", *said).sort("job").collect()
    )
    assert first == (0, 2, 0, 0, None, True, False, 0)
    assert second == (None,) * len(said)
    assert third[:4] + third[5:] == (0, 2, 0, 0, True, True, 0)
    assert third[4] is not None


def test_a_view_takes_a_schema_too(reader, log_path):
    view = reader().option("view", "offsets").schema("end_offset bigint, partition int").load(log_path)
    assert [tuple(row) for row in view.collect()] == [(5, 0), (0, 1)]


def test_a_view_without_rows_is_empty(reader, path):
    with open_log(path) as log:
        log.create(1)
    assert reader().option("view", "progress").load(path).collect() == []
    assert reader().load(path).collect() == []
