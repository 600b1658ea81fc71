"""The partition of a row by its key. Spark's JVM computes it if it can, otherwise Python, with the same result."""

from datetime import UTC, datetime
from itertools import product
from weakref import WeakKeyDictionary

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as sf

from spark_cas.core.partitioner import DEFAULT_PARTITIONER, PARTITIONERS, partition_of, partition_of_key
from spark_cas.core.records import HEADERS
from spark_cas.spark.accelerators import jvm_hash
from spark_cas.spark.accelerators.jvm_hash import JvmHash
from spark_cas.spark.arrow_rows import records_of
from spark_cas.spark.writing.partition_by_key import partition_by_key
from tests.spark.session_settings import session_settings

pytestmark = pytest.mark.spark

MANY = 2**31 - 1
"""The maximum number of partitions, so that two hashes hardly ever share one."""

KEYS = [None, b"", b"k", b"key", b"keys", b"key of some length", b"\x00\xff\xfe\x80", b"\xc3", "schlüssel".encode()]
RESTS = [
    (None, None, None),
    (b"", None, None),
    (b"\xff\x80", [], None),
    (b"v", [{"key": "h", "value": b"\xff"}], None),
    (b"v", [{"key": "hé", "value": None}, {"key": "", "value": b""}], None),
    (b"v", [{"key": None, "value": b"x"}, None], None),
    (b"v", None, datetime(2026, 11, 27, 3, 4, 5, 678_000, UTC)),
    (b"v", None, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    (b"v" * 300, [{"key": "h", "value": b"x" * 300}], datetime(1970, 1, 1, tzinfo=UTC)),
]
ROWS = pa.Table.from_pylist(
    [
        {"number": number, "key": key, "value": value, "headers": headers, "timestamp": at}
        for number, (key, (value, headers, at)) in enumerate(product(KEYS, RESTS))
    ],
    pa.schema(
        {
            "number": pa.int32(),
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": HEADERS,
            "timestamp": pa.timestamp("us", "UTC"),
        }
    ),
)


def expected(rows, partitioner=DEFAULT_PARTITIONER):
    (batch,) = rows.combine_chunks().to_batches()
    return partition_of(records_of(batch.drop_columns("number")), MANY, partitioner).to_pylist()


def found(df, partitioner=DEFAULT_PARTITIONER):
    placed = df.withColumn("partition", partition_by_key(df, MANY, partitioner)).sort("number")
    return [row.partition for row in placed.select("partition").collect()]


@pytest.fixture(params=["in the JVM", "in Python"])
def either_way(request, monkeypatch):
    if request.param == "in Python":
        monkeypatch.setattr(JvmHash, "of", lambda _: None)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("names", [ROWS.column_names, ["number", "key", "timestamp"], ["number", "key"]])
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_both_match_the_partitioner(spark, names, partitioner):
    rows = ROWS.select(names)
    assert found(spark.createDataFrame(rows), partitioner) == expected(rows, partitioner)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=300), partitions=st.integers(1, MANY))
def test_random_keys_get_the_same_partition_in_the_jvm_and_in_python(spark, partitioner, keys, partitions):
    rows = pa.table({"number": pa.array(range(len(keys)), pa.int32()), "key": pa.array(keys, pa.binary())})
    df = spark.createDataFrame(rows)
    assert JvmHash.of(spark) is not None
    placed = df.withColumn("partition", partition_by_key(df, partitions, partitioner)).sort("number").collect()
    records = pa.record_batch({"key": rows["key"].combine_chunks()})
    assert [row.partition for row in placed] == partition_of(records, partitions, partitioner).to_pylist()
    assert [
        row.partition
        for row, key in zip(placed, keys, strict=True)
        if key is not None and row.partition != partition_of_key(key, partitions, partitioner)
    ] == []


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("collation", ["UTF8_BINARY", "UTF8_LCASE"])
def test_text_is_hashed_as_its_bytes(spark, collation):
    rows = spark.createDataFrame([(0, "Key"), (1, "schlüssel"), (2, None), (3, "")], "number int, key string")
    df = rows.withColumn("key", sf.col("key").cast(f"string collate {collation}"))
    keys = pa.array([b"Key", "schlüssel".encode(), None, b""])
    assert found(df) == partition_of(pa.record_batch({"key": keys}), MANY).to_pylist()


@pytest.mark.usefixtures("either_way")
def test_a_column_that_is_never_null(spark):
    df = spark.range(20).select(sf.col("id").alias("number"), sf.col("id").cast("string").alias("key"))
    keys = pa.array([str(number).encode() for number in range(20)])
    assert not df.schema["key"].nullable
    assert found(df) == partition_of(pa.record_batch({"key": keys}), MANY).to_pylist()


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_jvm_hashes_rows_without_python(spark, capsys, partitioner):
    df = spark.createDataFrame(ROWS)
    df.select(partition_by_key(df, 4, partitioner)).explain()
    assert "Python" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "method",
    [
        ("org.apache.commons.codec.digest.NotThere", "hash32"),
        ("org.apache.commons.codec.digest.MurmurHash2", "not_there"),
        ("org.apache.commons.codec.digest.MurmurHash3", "hash32"),
    ],
)
def test_python_hashes_where_the_jvm_cannot_or_has_another_hash(spark, monkeypatch, method):
    monkeypatch.setattr(jvm_hash, "_tried", WeakKeyDictionary())
    monkeypatch.setattr(jvm_hash, "_HASH", method)
    assert JvmHash.of(spark) is None
    assert found(spark.createDataFrame(ROWS)) == expected(ROWS)


def test_it_does_where_expressions_are_not_made_of_columns(spark, monkeypatch):
    monkeypatch.setattr(jvm_hash, "_tried", WeakKeyDictionary())
    monkeypatch.setattr(jvm_hash, "_COLUMNS", "org.apache.spark.sql.classic.NotThere")
    assert JvmHash.of(spark) is None


SETTINGS = [
    {"spark.sql.function.concatBinaryAsString": "true"},
    {"spark.sql.function.concatBinaryAsString": "TRUE"},
    {"spark.sql.ansi.enabled": "false"},
    {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    {"spark.sql.session.timeZone": "America/St_Johns"},
]


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("of_session", SETTINGS, ids=lambda settings: next(iter(settings)))
def test_settings_of_the_session_make_no_difference(spark, of_session, partitioner):
    with session_settings(spark, of_session):
        assert found(spark.createDataFrame(ROWS), partitioner) == expected(ROWS, partitioner)


def test_jvm_hash_is_tried_once(spark):
    assert JvmHash.of(spark) is JvmHash.of(spark) is not None


@pytest.mark.usefixtures("either_way")
def test_a_value_may_be_text(spark):
    rows = ROWS.set_column(2, "value", pa.array([None, "", "välue"] * (len(ROWS) // 3), pa.string()))
    as_bytes = rows.set_column(2, "value", rows.column("value").cast(pa.binary()))
    assert found(spark.createDataFrame(rows)) == expected(as_bytes)
