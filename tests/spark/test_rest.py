"""The remaining rows of an interrupted load, and frames without its earlier rows; no JVM."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from spark_cas.core.errors import InputChangedError, LayoutChangedError, NotRoutedError
from spark_cas.core.plan import EarlierRows
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.after_expansion import earlier_rows, plan_now
from spark_cas.log.load.planning import complete_job, job_results
from spark_cas.options.parse import parse_write
from spark_cas.spark.schema import Mark
from spark_cas.spark.writing import verify
from spark_cas.spark.writing import write as write_module
from spark_cas.spark.writing.preflight import preflight_limits
from spark_cas.spark.writing.stream_write import plan_batch_write
from spark_cas.spark.writing.write import ConditionalLogWriter, plan_write
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import crash_after_chunks, rows_of, run_job, run_rest
from tests.support.writing import table_of

ROWS = rows_of(6, 0, 1)


def options(path, **more):
    return parse_write({"path": path, **more})


def frame(mark):
    fields = [StructField(name, BinaryType()) for name in ("key", "value")]
    return StructType([*fields, StructField("partition", IntegerType(), metadata=mark.metadata())])


@pytest.fixture
def begun(log):
    """Interrupt a load and add partitions. Return the mark of a frame with the remaining rows."""
    crash_after_chunks(log, "job", ROWS, 2)
    layout = expand_log(log, 4)
    return Mark(4, layout.epoch, sorted=True, earlier=earlier_rows(log, "job"))


def test_remaining_rows_are_written_only_by_their_load(path, begun):
    for plan, given in (
        (plan_write, {"idempotence": "off"}),
        (plan_batch_write, {"job": "stream", "batchid": "0"}),
    ):
        with pytest.raises(NotRoutedError, match="routed for job 'job', without the rows"):
            plan(options(path, **given), frame(begun))
    with pytest.raises(LayoutChangedError, match="6 rows were taken out"):
        plan_write(options(path, job="other"), frame(begun))
    writer = plan_write(options(path, job="job"), frame(begun))
    assert isinstance(writer, ConditionalLogWriter)
    assert writer.task.plan.earlier == begun.earlier


def test_partitions_that_are_added_while_a_write_is_planned_void_it(path, log, begun, monkeypatch):

    def expanding(*given, **more):
        expand_log(log, 8)
        return preflight_limits(*given, **more)

    monkeypatch.setattr(write_module, "preflight_limits", expanding)
    with pytest.raises(LayoutChangedError, match="while the write was planned"):
        plan_write(options(path, job="job"), frame(begun))


def test_late_completion_of_the_first_driver_keeps_the_remaining_rows(path, log):
    """The tasks of the first run end before partitions are added; its driver completes after the rest is done."""
    with pytest.raises(InjectedFaultError):
        run_job(FaultyLog(log, Fault("record_completion", 1, When.BEFORE)), "job", ROWS)
    first, results = log.plan("job"), job_results(log, "job")
    layout = expand_log(log, 4)
    done = run_rest(log, "job", ROWS)
    complete_job(log, first, results)
    mark = Mark(4, layout.epoch, earlier=earlier_rows(log, "job"))
    writer = plan_write(options(path, job="job"), frame(mark))
    assert isinstance(writer, ConditionalLogWriter)
    assert writer.task.completion == done
    now = plan_now(log, "job")
    assert now is not None
    assert now.job == done.job


def dropped(monkeypatch, earlier, values, partition=0):
    """Return the values of a partition's rows that remain after the earlier rows are dropped."""
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: partition))
    rows = table_of(values).append_column("partition", pa.array([partition] * len(values), pa.int32()))
    found = verify._dropper(earlier)(iter(rows.to_batches(max_chunksize=2)))
    return [value.decode() for batch in found for value in batch.column("value").to_pylist()]


def test_first_rows_are_removed_if_they_match_the_log(log, begun, monkeypatch):
    (earlier,) = begun.earlier
    assert earlier.rows == (3, 3)
    assert dropped(monkeypatch, earlier, ROWS[0]) == ROWS[0][3:]
    assert dropped(monkeypatch, earlier, ROWS[1], partition=1) == ROWS[1][3:]
    assert dropped(monkeypatch, earlier, ROWS[0][:3]) == []
    for values, told in (
        (ROWS[0][:2], "the input now has only 2"),
        ([], "the input now has only 0"),
        ([*ROWS[0][1::-1], *ROWS[0][2:]], "the input now has others, or in another order"),
    ):
        with pytest.raises(InputChangedError, match=told):
            dropped(monkeypatch, earlier, values)
    whole = EarlierRows("job", earlier.rows, earlier.digests, (True, False))
    assert dropped(monkeypatch, whole, ROWS[0][:3]) == []
    with pytest.raises(InputChangedError, match="these were all, but the input now has more"):
        dropped(monkeypatch, whole, ROWS[0])
