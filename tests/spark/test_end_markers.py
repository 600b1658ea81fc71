"""End markers: a task detects by them whether it has read all rows of a partition or of a load. No JVM."""

import pyarrow as pa
import pytest

from spark_cas.core.errors import NotRoutedError
from spark_cas.spark.writing.end_markers import (
    MARKER,
    all_in_one_task,
    before_end_markers,
    require_no_end_markers,
)

PARTITIONS = 2
END_OF_0, END_OF_1 = -2, -1
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.binary()), ("partition", pa.int32())])


def batch(*ids):
    """Rows of these partitions, and an end marker for each negative id."""
    ends = [number is not None and number < 0 for number in ids]
    keys = [None if end or at % 2 else str(at) for at, end in enumerate(ends)]
    values = [MARKER.encode() if end else b"%d" % at for at, end in enumerate(ends)]
    return pa.RecordBatch.from_pydict({"key": keys, "value": values, "partition": ids}, schema=SCHEMA)


def ids_of(batches):
    return [each for batch in batches for each in batch.column("partition").to_pylist()]


def joined(batches):
    return pa.Table.from_batches(batches).combine_chunks().to_batches()


@pytest.mark.parametrize(
    ("batches", "rows"),
    [
        ([], []),
        ([batch()], []),
        ([batch(END_OF_1)], []),
        ([batch(1, 1, END_OF_1)], [1, 1]),
        ([batch(1, 1), batch(END_OF_1)], [1, 1]),
        ([batch(0), batch(0, END_OF_0, 1), batch(1, END_OF_1)], [0, 0, 1, 1]),
        ([batch(END_OF_0, 1, END_OF_1)], [1]),
        ([batch(0, 1, END_OF_1, END_OF_0)], [0, 1]),
    ],
)
def test_markers_are_removed_and_rows_keep_their_order(batches, rows):
    assert ids_of(before_end_markers(batches, PARTITIONS)) == rows


@pytest.mark.parametrize(
    "batches", [[batch(1, 1)], [batch(1, 1), batch(1)], [batch(0, END_OF_0, 1)], [batch(0, END_OF_1)]]
)
def test_input_without_an_end_marker_was_cut_off(batches):
    with pytest.raises(EOFError):
        list(before_end_markers(batches, PARTITIONS))


@pytest.mark.parametrize(
    "batches",
    [
        [batch(1, END_OF_1, 1)],
        [batch(1, END_OF_1), batch(1)],
        [batch(END_OF_1, END_OF_1)],
        [batch(1, -3, END_OF_1)],
    ],
)
def test_rows_or_markers_at_a_wrong_place_are_rejected(batches):
    with pytest.raises(NotRoutedError):
        list(before_end_markers(batches, PARTITIONS))


@pytest.mark.parametrize("number", [0, 1, None])
def test_marker_that_has_become_a_row_is_rejected(number):
    columns = {"key": [None], "value": [MARKER.encode()], "partition": [number]}
    with pytest.raises(NotRoutedError):
        list(before_end_markers([pa.RecordBatch.from_pydict(columns, schema=SCHEMA)], PARTITIONS))


@pytest.mark.parametrize("number", [-1, -2, -3, None])
def test_row_with_a_wrong_partition_is_no_marker(number):
    columns = {"key": ["x", None], "value": [b"x", None], "partition": [number, number]}
    rows = before_end_markers([pa.RecordBatch.from_pydict(columns, schema=SCHEMA)], PARTITIONS)
    assert next(rows).column("partition").to_pylist() == [number, number]


def load(*ids):
    """The rows of a load in one task; for None, an end marker with its position."""
    return [batch(*(-1 - at if number is None else number for at, number in enumerate(ids)))]


@pytest.mark.parametrize(
    ("batches", "rows"),
    [
        ([], []),
        ([batch()], []),
        (load(None, None), []),
        (load(0, 0, None, 1, None), [0, 0, 1]),
        ([each.slice(at, 1) for each in load(0, 0, None, 1, None) for at in range(5)], [0, 0, 1]),
    ],
)
def test_one_task_with_all_rows(batches, rows):
    assert ids_of(all_in_one_task(batches, PARTITIONS)) == rows


@pytest.mark.parametrize(
    "batches",
    [
        load(0, 0),
        load(0, 0, None),
        load(0, None, 1),
        load(0, None, None, 1),
        load(0, None, None, None),
        [each.slice(1) for each in load(0, 0, None, 1, None)],
        [each.take([0, 1, 2, 4]) for each in load(0, 0, None, 1, None)],
        [*load(0, None, 1, None), *load(0, None, 1, None)],
        [batch(0, END_OF_0, 1, END_OF_1)],
    ],
    ids=[
        "no marker",
        "one marker of two",
        "no marker at the end",
        "a row at the end",
        "too many markers",
        "the first row is missing",
        "a row is missing",
        "two loads",
        "markers without positions",
    ],
)
def test_one_task_with_other_rows_than_all_is_rejected(batches):
    with pytest.raises(NotRoutedError):
        list(all_in_one_task(batches, PARTITIONS))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_marker_has_the_type_of_the_value(kind):
    schema = pa.schema([("key", pa.string()), ("value", kind), ("partition", pa.int32())])
    columns = [pa.nulls(1, pa.string()), pa.array([MARKER]).cast(kind), pa.array([END_OF_0], pa.int32())]
    marker = pa.RecordBatch.from_arrays(columns, schema=schema)
    assert ids_of(before_end_markers([marker], PARTITIONS)) == []


def test_marker_in_a_frame_without_a_mark_is_rejected():
    rows = [batch(0, 0), batch(0, END_OF_0).drop_columns("partition")]
    found = require_no_end_markers(rows)
    assert next(found).num_rows == 2
    with pytest.raises(NotRoutedError):
        next(found)
    given = {"key": ["a", None], "value": [MARKER.encode(), b"x"], "partition": [0, 0]}
    row = pa.RecordBatch.from_pydict(given, schema=SCHEMA)
    assert [each.num_rows for each in require_no_end_markers([row])] == [2]
