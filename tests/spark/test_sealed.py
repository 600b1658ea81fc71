"""The seal behind the rows of a load in one transaction: whether a task has all of them, and nothing else."""

import pyarrow as pa
import pytest

from spark_cas.core.errors import NotRoutedError
from spark_cas.spark.writing.sealed import _sealing, unsealed

SCHEMA = pa.schema([("partition", pa.int32()), ("value", pa.string())])


def batches(*rows):
    return [
        pa.RecordBatch.from_arrays([pa.array(each, pa.int32()), pa.array(map(str, each))], schema=SCHEMA)
        for each in rows
    ]


def sealed(*rows):
    return list(_sealing(SCHEMA)(iter(batches(*rows))))


def partitions(found):
    return [each for batch in found for each in batch.column("partition").to_pylist()]


@pytest.mark.parametrize("rows", [(), ([0],), ([0, 0, 1], [1, 2]), ([0], [])])
def test_it_is_taken_off_again(rows):
    assert partitions(unsealed(sealed(*rows))) == [each for found in rows for each in found]
    together = pa.Table.from_batches(sealed(*rows)).combine_chunks().to_batches()
    assert partitions(unsealed(together)) == [each for found in rows for each in found]


@pytest.mark.parametrize(
    "given",
    [
        batches([0, 1]),
        sealed([0, 1])[1:],
        sealed([0, 1], [2])[1:],
        [*sealed([0, 1]), *batches([2])],
        [*sealed([0]), *sealed([0])],
        batches([0, -2, 1]),
    ],
    ids=["no seal", "the seal alone", "rows are missing", "more behind it", "two", "in the middle"],
)
def test_rows_that_are_not_just_those_are_refused(given):
    with pytest.raises(NotRoutedError, match="others may be in other tasks"):
        list(unsealed(given))


def test_a_task_without_rows_needs_none():
    assert list(unsealed([])) == []
    assert list(unsealed(batches([]))) == []
