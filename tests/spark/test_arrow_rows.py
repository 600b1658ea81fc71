"""Conversion of Spark's Arrow batches to records and back, without a JVM."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import NotRoutedError
from spark_cas.core.records import HEADERS, RECORDS
from spark_cas.core.row_claims import split_claims
from spark_cas.spark import schema as columns
from spark_cas.spark.arrow_rows import RowBuilder, by_partition, records_of
from spark_cas.spark.versions import arrow_schema


def batch(ids, **more):
    keys = [str(row).encode() for row in range(len(ids))]
    return pa.RecordBatch.from_pydict({"key": keys, "value": keys, "partition": pa.array(ids, pa.int32()), **more})


@given(st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=4))
def test_each_partition_gets_its_rows_in_their_order(ids):
    frames = [batch(each) for each in ids]
    got: dict[int, list[bytes]] = {partition: [] for partition in range(4)}
    for partition, records in by_partition(frames, 4):
        assert records.schema.equals(RECORDS)
        assert records.num_rows
        got[partition] += records.column("key").to_pylist()
    for partition in range(4):
        expected = [str(row).encode() for each in ids for row, at in enumerate(each) if at == partition]
        assert got[partition] == expected


def test_rows_of_a_mixed_batch_do_not_keep_the_batch_in_memory():
    mixed = batch([0] * 999 + [1])
    records = dict(by_partition([mixed], 2))[1]
    assert records.get_total_buffer_size() < 1000 < mixed.nbytes


@pytest.mark.parametrize("ids", [[0, 0, 0], [0, 1, 0]])
def test_expected_offsets_are_separate_from_records(ids):
    (partition, rows), *_ = by_partition([batch(ids, expected_offset=pa.array([7, None, -1], pa.int64()))], 2)
    records, claims = split_claims(rows)
    assert partition == 0
    assert records.schema.equals(RECORDS)
    assert claims is not None
    assert claims.to_pylist() == [claim for at, claim in zip(ids, [7, None, -1], strict=True) if at == 0]


def test_the_rows_of_one_partition_are_not_copied():
    whole = batch([1, 1])
    ((partition, records),) = by_partition([whole], 2)
    assert partition == 1
    assert records.column("key").buffers()[2].address == whole.column("key").buffers()[2].address


@pytest.mark.parametrize(("ids", "found"), [([0, None], "null"), ([None], "null"), ([-1, 0], "-1"), ([0, 4], "4")])
def test_ids_outside_the_layout_are_refused_naming_route(ids, found):
    with pytest.raises(NotRoutedError, match=rf"partition {found}, but the log has 4 .*spark_cas\.route"):
        list(by_partition([batch(ids)], 4))


def test_missing_columns_are_null_and_others_are_left_out():
    records = records_of(batch([0], offset=pa.array([7])))
    assert records.to_pylist() == [{"key": b"0", "value": b"0", "headers": None, "timestamp": None}]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_large_types_become_binary(kind):
    values = ["ä", "", None]
    column = pa.array(values, pa.string()).cast(kind)
    records = records_of(pa.RecordBatch.from_pydict({"key": column, "value": column}))
    assert records.column("key").to_pylist() == ["ä".encode(), b"", None]


def test_large_headers_become_headers():
    large = pa.list_(pa.struct([pa.field("key", pa.large_string()), pa.field("value", pa.large_binary())]))
    rows = [[{"key": "a", "value": b"x"}, {"key": None, "value": None}], [], None]
    records = records_of(pa.RecordBatch.from_pydict({"headers": pa.array(rows, large)}))
    assert records.column("headers").to_pylist() == rows
    assert records.schema.field("headers").type == HEADERS


def test_times_are_converted_to_milliseconds_before_1970_too():
    micros = pa.array([1000, 0, -1000, None], pa.int64()).cast(pa.timestamp("us", "Europe/Berlin"))
    records = records_of(pa.RecordBatch.from_pydict({"timestamp": micros}))
    assert records.column("timestamp").cast(pa.int64()).to_pylist() == [1, 0, -1, None]


def test_rows_have_spark_columns_of_constants_and_offsets():
    arrow = arrow_schema(columns.RECORDS_AND_HEADERS)
    builder = RowBuilder(arrow, "flights", 3)
    rows = [{"key": b"k", "value": None, "headers": [{"key": "h", "value": b"1"}], "timestamp": 5}] * 2
    records = pa.RecordBatch.from_pylist(rows, schema=RECORDS)
    for offsets in ([10, 11], [12], [13, 15]):
        count = len(offsets)
        built = builder.build(np.array(offsets), records.slice(0, count))
        assert built.schema.equals(arrow)
        assert built.column("offset").to_pylist() == offsets
        assert built.column("topic").to_pylist() == ["flights"] * count
        assert built.column("partition").to_pylist() == [3] * count
        assert built.column("timestampType").to_pylist() == [0] * count
        assert built.column("timestamp").cast(pa.int64()).to_pylist() == [5000] * count
        assert built.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}]] * count
