"""End markers: a task knows by them that it has read all rows of a partition. No JVM."""

import pyarrow as pa
import pytest

from spark_cas.core.errors import NotRoutedError
from spark_cas.spark.writing.end_markers import before_end_markers

PARTITIONS = 2
END_OF_0, END_OF_1 = -2, -1


def batch(*ids):
    """Rows of these partitions, whose key is the position, and end markers if an id is negative."""
    keys = [str(at) if number is None or number >= 0 else None for at, number in enumerate(ids)]
    return pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.string()), "partition": pa.array(ids, pa.int32())})


def partitions_of(*batches, **more):
    rows = before_end_markers(batches, PARTITIONS, **more)
    return [each for batch in rows for each in batch.column("partition").to_pylist()]


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
    assert partitions_of(*batches) == rows


@pytest.mark.parametrize(
    "batches", [[batch(1, 1)], [batch(1, 1), batch(1)], [batch(0, END_OF_0, 1)], [batch(0, END_OF_1)]]
)
def test_input_without_an_end_marker_was_cut_off(batches):
    with pytest.raises(EOFError, match="end marker of partition"):
        partitions_of(*batches)


@pytest.mark.parametrize(
    "batches", [[batch(1, END_OF_1, 1)], [batch(1, END_OF_1), batch(1)], [batch(END_OF_1, END_OF_1)]]
)
def test_rows_after_an_end_marker_are_rejected(batches):
    with pytest.raises(NotRoutedError, match="partition 1"):
        partitions_of(*batches)


@pytest.mark.parametrize("batches", [[batch(0, END_OF_0)], [batch(0)], [batch(0, END_OF_0, 1)], [batch(END_OF_1)]])
def test_one_task_with_a_part_of_the_rows_is_rejected(batches):
    with pytest.raises(NotRoutedError, match="in one task"):
        partitions_of(*batches, in_one_task=True)


def test_one_task_with_all_rows_or_none():
    assert partitions_of(batch(0, END_OF_0, END_OF_1), in_one_task=True) == [0]
    assert partitions_of(in_one_task=True) == []


@pytest.mark.parametrize("number", [-1, -2, -3, None])
def test_row_with_a_wrong_partition_is_not_taken_for_a_marker(number):
    wrong = pa.RecordBatch.from_pydict({"key": ["x"], "partition": pa.array([number], pa.int32())})
    rows = before_end_markers([wrong], PARTITIONS)
    assert next(rows).column("partition").to_pylist() == [number]
