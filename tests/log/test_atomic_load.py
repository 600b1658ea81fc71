"""An atomic load appends the rows of a partition as one chunk, or nothing."""

import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import BatchTooLargeError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.records import record_sizes
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import pin_plan
from tests.support.loads import batches_of, rows_of
from tests.support.memory_log import MemoryLog
from tests.support.writing import table_of, values_in

SIZE = int(record_sizes(table_of(["0.1"]).to_batches()[0])[0])


@pytest.fixture
def log():
    with MemoryLog() as log:
        log.create(3)
        yield log


def load(log, rows, limits):
    plan = pin_plan(log, "job", ExpectedOffsets("end"))
    return append_rows(log, plan, batches_of(rows, 4), task="run/0", limits=limits, atomic=True)


@pytest.mark.parametrize("limits", [{"max_bytes": 8 * SIZE}, {"max_records": 8}, {"max_seconds": 0}])
def test_partitions_within_the_limit_are_one_chunk_each(log, limits):
    rows = rows_of(8, 0, 1, 2)
    results = load(log, rows, ChunkLimits(**limits))
    assert [result.progress.chunks for result in results] == [1, 1, 1]
    assert [values_in(log, partition) for partition in range(3)] == list(rows.values())


@pytest.mark.parametrize("limits", [{"max_bytes": 8 * SIZE}, {"max_records": 8}])
def test_nothing_of_a_task_is_appended_when_one_of_its_partitions_does_not_fit(log, limits):
    with pytest.raises(BatchTooLargeError) as raised:
        load(log, rows_of(8, 0, 1) | rows_of(9, 2), ChunkLimits(**limits))
    assert raised.value.partition == 2
    assert [values_in(log, partition) for partition in range(3)] == [[], [], []]
