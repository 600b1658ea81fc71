"""The writer, driven as Spark drives it but in this process: plan, tasks, commit."""

import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from spark_cas import LogSettingsWarning
from spark_cas.core.errors import (
    BatchTooLargeError,
    ConditionalLogError,
    ConflictError,
    ExpectedOffsetError,
    FencedError,
    InputChangedError,
    InputError,
    JobMismatchError,
    LayoutChangedError,
    LogNotFoundError,
    LogNotSharedError,
    MissingRowsError,
    NotRoutedError,
    OptionError,
    RecordTooLargeError,
    SchemaError,
    StorageError,
    TruncatedError,
    UnknownOutcomeError,
)
from spark_cas.core.plan import PartitionResult, Progress
from spark_cas.log.backend import Preflight
from spark_cas.log.load.cancelling import Rejection, RunCancelledError
from spark_cas.log.objects import ObjectLog
from spark_cas.log.open import open_log
from spark_cas.spark.schema import Mark
from spark_cas.spark.source import ConditionalLogSource
from spark_cas.spark.writing import blind_write
from spark_cas.spark.writing import write as write_module
from spark_cas.spark.writing.end_markers import MARKER
from spark_cas.spark.writing.report import TaskReport, attempted, partitions_of_rejected, worst_refusal
from tests.contract.expecting import next_offsets


def frame(partitions=2, epoch=None, *more):
    routed = Mark(partitions, epoch).metadata() if partitions else None
    return StructType(
        [
            *more,
            StructField("key", StringType()),
            StructField("value", BinaryType()),
            StructField("partition", IntegerType(), metadata=routed),
        ]
    )


def batch(partition, rows):
    values = [str(row).encode() for row in rows]
    ids = pa.array([partition] * len(values), pa.int32())
    return pa.RecordBatch.from_pydict({"key": pa.array(values, pa.string()), "value": values, "partition": ids})


CLAIMING = frame(2, None, StructField("expected_offset", LongType()))


def claiming(partition, rows, *claims):
    found = batch(partition, rows)
    return found.append_column("expected_offset", pa.array(claims, pa.int64()))


@pytest.fixture
def plan(path, monkeypatch):
    """Make a writer as Spark does, and send it to a task by pickle."""
    monkeypatch.delenv("SPARK_CAS_CONF", raising=False)

    def plan(schema=None, overwrite=False, **options):
        given = {"path": path, "job": "load-1", **options}
        given = {name: value for name, value in given.items() if value is not None}
        writer = ConditionalLogSource(given).writer(frame() if schema is None else schema, overwrite)
        return pickle.loads(pickle.dumps(writer))  # noqa: S301 - made here

    return plan


@pytest.fixture
def run_task(monkeypatch):
    """Run one task of a write, given as its number and batches."""

    def run_task(writer, number, *batches):
        for module in (write_module, blind_write):
            monkeypatch.setattr(module, "task_number", lambda: number)
        return pickle.loads(pickle.dumps(writer.write(iter(batches))))  # noqa: S301 - made here

    return run_task


@pytest.fixture
def run(run_task):
    """Run the tasks of a write, each given as its batches, then commit."""

    def run(writer, *tasks):
        messages = [run_task(writer, number, *batches) for number, batches in enumerate(tasks)]
        writer.commit(messages)
        return messages

    return run


def keys(path, partition):
    with open_log(path) as log:
        offsets = log.bounds(partition).range
        return [key for _, records in log.read(partition, offsets) for key in records.column("key").to_pylist()]


TWO_TASKS = ([batch(0, range(10))], [batch(1, range(5)), batch(1, range(5, 9))])


def test_a_log_is_created_with_the_partition_count(plan, run, path):
    run(plan(partitions="2"), *TWO_TASKS)
    assert keys(path, 0) == [b"%d" % row for row in range(10)]
    assert len(keys(path, 1)) == 9


ENDING = StructType(
    [
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType(), metadata=Mark(2, None, end_markers="partition").metadata()),
    ]
)


def end_of(partition):
    columns = {"key": pa.nulls(1, pa.string()), "value": pa.array([MARKER.encode()])}
    return pa.RecordBatch.from_pydict({**columns, "partition": pa.array([partition - 2], pa.int32())})


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_input_without_its_end_marker_does_not_complete_a_partition(plan, run, run_task, path, atomic):
    writer = plan(ENDING, partitions="2", maxRecordsPerChunk="4" if atomic == "false" else "100", atomic=atomic)
    with pytest.raises(EOFError):
        run_task(writer, 0, batch(0, range(10)))
    assert keys(path, 0) == ([b"%d" % row for row in range(8)] if atomic == "false" else [])
    with open_log(path) as log:
        progress = log.progress(0, "load-1")
    assert progress is None or not progress.complete
    run(writer, [batch(0, range(10)), end_of(0)], [end_of(1)])
    assert keys(path, 0) == [b"%d" % row for row in range(10)]


def test_write_without_exactly_once_does_not_append_end_markers(plan, run, path):
    writer = plan(ENDING, job=None, partitions="2", idempotence="off", expectedOffsets="none")
    run(writer, [batch(0, range(10)), end_of(0)], [end_of(1)])
    assert keys(path, 0) == [b"%d" % row for row in range(10)]
    assert keys(path, 1) == []


def test_a_missing_log_without_a_count_is_refused(plan):
    with pytest.raises(LogNotFoundError, match=r"option\('partitions'"):
        plan()


def test_another_count_than_the_log_has_is_refused(plan):
    plan(partitions="2")
    with pytest.raises(OptionError, match="option partitions is 3, but the log has 2"):
        plan(partitions="3")
    with pytest.raises(NotRoutedError, match="routed for 3 partitions"):
        plan(frame(3))
    with pytest.raises(LayoutChangedError):
        plan(frame(2, epoch=1))
    plan(frame(None), routed="true")


def test_rows_routed_for_a_log_that_is_gone_make_no_new_one(plan, path):
    plan(partitions="2")
    shutil.rmtree(path)
    with pytest.raises(LayoutChangedError, match="not there any more"):
        plan(frame(2, epoch=0), partitions="2")
    with pytest.raises(NotRoutedError, match="routed for 3 partitions, but the log has 2"):
        plan(frame(3), partitions="2")
    assert not Path(path).exists()


def test_overwrite_creates_nothing(plan, tmp_path):
    with pytest.raises(OptionError, match="overwrite"):
        plan(overwrite=True, partitions="2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("routed_for", "options"),
    [(4, {"partitions": "8"}), (None, {"partitions": "4", "routed": "true", "expectedoffsets": '{"9": 0}'})],
)
def test_a_refused_write_does_not_fix_the_partition_count_of_a_new_log(plan, tmp_path, routed_for, options):
    with pytest.raises(InputError):
        plan(frame(routed_for), **options)
    assert list(tmp_path.iterdir()) == []


def test_a_complete_job_appends_nothing_and_compares(plan, run, path):
    run(plan(partitions="2"), *TWO_TASKS)
    run(plan(), *TWO_TASKS)
    assert len(keys(path, 0)) == 10
    changed = [
        [[batch(0, range(9))], TWO_TASKS[1]],
        [[batch(0, range(11))], TWO_TASKS[1]],
        [[batch(0, reversed(range(10)))], TWO_TASKS[1]],
        [TWO_TASKS[0]],
        [],
    ]
    for tasks in changed:
        with pytest.raises(InputChangedError, match="is complete, and its input has changed"):
            run(plan(), *tasks)
    with pytest.raises(NotRoutedError, match="two tasks"):
        run(plan(), [batch(0, range(5))], [batch(0, range(5, 10))], TWO_TASKS[1])
    assert (len(keys(path, 0)), len(keys(path, 1))) == (10, 9)


def test_changed_input_of_a_complete_job_reports_extra_rows(plan, run, path):
    late = plan(partitions="2", expectedoffsets="none")
    run(plan(expectedoffsets="none"), TWO_TASKS[0])
    with pytest.raises(InputChangedError, match=r"partition 0 holds 10 rows .* partitions 1\. .* 19 rows of job"):
        run(late, TWO_TASKS[1])
    with pytest.raises(
        InputChangedError, match=r"is complete, and its input has changed.* 19 rows of job 'load-1' are"
    ):
        run(plan(expectedoffsets="none"), TWO_TASKS[1])
    assert (len(keys(path, 0)), len(keys(path, 1))) == (10, 9)


def test_a_complete_job_is_compared_after_its_rows_were_trimmed(plan, run, path):
    run(plan(partitions="2"), *TWO_TASKS)
    run(plan(job="load-2"), *TWO_TASKS)
    with open_log(path) as log:
        assert log.trim(0, 10).start_offset == 10
    run(plan(), *TWO_TASKS)
    assert len(keys(path, 0)) == 10


def half_done(plan):
    """A task that is killed after two of its chunks are in the log."""

    def dying():
        yield batch(0, range(10))
        raise ZeroDivisionError

    writer = plan(partitions="2", maxrecordsperchunk="4")
    with pytest.raises(ZeroDivisionError):
        writer.write(dying())


def test_second_run_resumes_after_the_first(plan, run, path, monkeypatch):
    monkeypatch.setattr(write_module, "task_number", lambda: 0)
    half_done(plan)
    assert keys(path, 0) == [b"%d" % row for row in range(8)]
    (message,) = run(plan(), [batch(0, range(12))])
    assert keys(path, 0) == [b"%d" % row for row in range(12)]
    (result,) = message.results
    assert (result.resumed_rows, result.progress.rows) == (8, 12)


@pytest.mark.parametrize("rows", [[0, 1, 2, 99, *range(4, 12)], range(7), [1, 0, *range(2, 12)], range(1, 12)])
def test_changed_input_on_resume_appends_nothing(plan, run, path, rows, monkeypatch):
    monkeypatch.setattr(write_module, "task_number", lambda: 0)
    half_done(plan)
    with pytest.raises(InputChangedError):
        run(plan(), [batch(0, rows)])
    assert len(keys(path, 0)) == 8


def test_rows_that_vanished_on_resume_are_noticed(plan, run, monkeypatch):
    monkeypatch.setattr(write_module, "task_number", lambda: 0)
    half_done(plan)
    with pytest.raises(InputChangedError, match="the input now has none"):
        run(plan(), [batch(1, range(3))])
    with pytest.raises(InputChangedError):
        run(plan())


def test_stale_write_is_rejected_before_any_task_with_new_offsets(plan, run, path):
    run(plan(partitions="2"), *TWO_TASKS)
    with pytest.raises(ConflictError) as caught:
        plan(job="load-2", expectedoffsets='{"0": 3, "1": 4}')
    assert (caught.value.job, set(caught.value.next_offsets or ())) == ("load-2", {0, 1})
    run(plan(job="load-2", expectedoffsets=next_offsets(caught)), *TWO_TASKS)
    assert (len(keys(path, 0)), len(keys(path, 1))) == (20, 18)


def test_conflict_is_reported_once_and_fixed_in_one_run(plan, run, path):
    writer = plan(partitions="2")
    run(plan(job="faster", expectedoffsets="none"), *TWO_TASKS)
    with pytest.raises(ConflictError) as caught:
        run(writer, *TWO_TASKS)
    assert set(caught.value.next_offsets or ()) == {0, 1}
    assert "No row of job 'load-1' is in the log." in str(caught.value)
    run(plan(expectedoffsets=next_offsets(caught)), *TWO_TASKS)
    assert (len(keys(path, 0)), len(keys(path, 1))) == (20, 18)


def test_conflict_in_a_partition_without_rows_reports_appended_rows(plan, run, path):
    writer = plan(partitions="2", expectedoffsets='{"0": 0, "1": 0}')
    run(plan(job="other", expectedoffsets="none"), [batch(1, range(3))])
    with pytest.raises(ConflictError, match=r"partition 1: expected offset 0 .* All 5 that it has are in") as caught:
        run(writer, [batch(0, range(5))])
    run(plan(expectedoffsets=next_offsets(caught)), [batch(0, range(5))])
    assert (len(keys(path, 0)), len(keys(path, 1))) == (5, 3)


@pytest.mark.parametrize("other", [{"expectedoffsets": "none"}, {"compare": "key"}])
def test_changed_rerun_reports_rows_that_would_be_repeated(plan, monkeypatch, other):
    monkeypatch.setattr(write_module, "task_number", lambda: 0)
    half_done(plan)
    with pytest.raises(
        JobMismatchError, match=r"8 rows of job 'load-1' are in the log and stay\. Another job name would app"
    ):
        plan(**other)


def test_batch_without_batch_id_is_advised_of_the_option(plan, run):
    run(plan(partitions="2"), [])
    with pytest.raises(InputChangedError, match="In foreachBatch, set the option batchId"):
        run(plan(), *TWO_TASKS)


def test_rows_of_one_partition_in_two_tasks_are_refused_naming_route(plan, run, path):
    with pytest.raises(NotRoutedError, match=r"spark_cas\.route"):
        run(plan(frame(None), routed="true", partitions="2"), [batch(0, range(5))], [batch(0, range(5, 9))])
    assert keys(path, 0) == [b"%d" % row for row in range(5)]


def test_rows_moved_after_route_are_rejected_with_the_rows_in_the_log(plan, run):
    with pytest.raises(NotRoutedError, match="5 rows of job 'load-1' are in the log and stay"):
        run(plan(partitions="2"), [batch(0, range(5))], [batch(0, range(5, 9))])


def test_several_partitions_in_one_task_are_fine(plan, run, path):
    mixed = pa.concat_batches([batch(0, range(3)), batch(1, range(2)), batch(0, range(3, 6))])
    run(plan(partitions="2"), [mixed, batch(1, range(2, 4))])
    assert keys(path, 0) == [b"%d" % row for row in range(6)]
    assert keys(path, 1) == [b"%d" % row for row in range(4)]


def test_ids_outside_the_layout_are_a_refusal(plan, run, path):
    with pytest.raises(NotRoutedError, match="partition 2, but the log has 2"):
        run(plan(partitions="2"), [batch(0, range(3)), batch(2, range(2))])


def test_a_record_larger_than_a_chunk_is_a_refusal(plan, run, path):
    with pytest.raises(RecordTooLargeError, match="option maxBytesPerChunk"):
        run(plan(partitions="2", maxbytesperchunk="100"), [batch(0, ["x" * 200])])
    assert keys(path, 0) == []


def test_preflight_limits_the_rows_and_is_reported(plan, run, path, monkeypatch):
    found = Preflight(max_record_bytes=100, notes=("records are deleted after a week",))
    monkeypatch.setattr(ObjectLog, "preflight", lambda _, **__: found)
    with pytest.warns(LogSettingsWarning, match="after a week"):
        writer = plan(partitions="2")
    with pytest.raises(RecordTooLargeError, match="at most 100 bytes"):
        run(writer, [batch(0, ["x" * 200])])
    assert keys(path, 0) == []


def test_complete_job_does_not_read_the_log_again(plan, run, monkeypatch):
    run(plan(partitions="2"), *TWO_TASKS)
    monkeypatch.setattr(ObjectLog, "preflight", None)
    run(plan(), *TWO_TASKS)


def test_a_job_is_not_continued_the_other_way(plan, run):
    run(plan(partitions="2"), *TWO_TASKS)
    with pytest.raises(JobMismatchError):
        plan(expectedoffsets="none")


def test_log_missing_on_a_worker_is_reported_as_not_shared(plan, run, path, set_timing):
    set_timing(planned_log=0.1)
    writer = plan(partitions="2")
    shutil.rmtree(path)
    with pytest.raises(LogNotSharedError, match="All workers need access"):
        run(writer, *TWO_TASKS)
    plan(partitions="2")
    with pytest.raises(LogNotSharedError, match="All workers need access"):
        run(writer, *TWO_TASKS)
    assert keys(path, 0) == []


def test_next_offsets_of_one_task_are_not_those_of_the_job(plan, path, set_timing):
    """If the driver cannot read the log, it does not know the other partitions."""
    set_timing(planned_log=0.1)
    task = plan(partitions="2").task
    conflict = ConflictError("x", partition=0, actual_offset=3, next_offsets={0: 3})
    shutil.rmtree(path)
    error = write_module.with_job_state(task.request.spec, task.plan, conflict, [])
    assert (type(error), error.fields) == (ConflictError, {"partition": 0, "actual_offset": 3})


@pytest.mark.parametrize("raised", [FencedError("x"), UnknownOutcomeError("x"), StorageError("x")])
def test_retryable_error_is_raised(plan, run_task, monkeypatch, raised):
    def failing(*_args, **_kwargs):
        raise raised

    monkeypatch.setattr(write_module, "append_rows", failing)
    with pytest.raises(type(raised)):
        run_task(plan(partitions="2"), 0, batch(0, range(3)))


def test_an_empty_write_completes_the_job(plan, run, path):
    run(plan(partitions="2"), [])
    with open_log(path) as log:
        completion = log.completion("load-1")
    assert completion is not None
    assert completion.rows == 0
    with pytest.raises(InputChangedError):
        run(plan(), *TWO_TASKS)


def test_abort_claims_nothing_and_accepts_missing_messages(plan, run_task, path):
    writer = plan(partitions="2")
    message = run_task(writer, 0, batch(0, range(3)))
    writer.abort([message, None])
    writer.commit([message, None])
    assert len(keys(path, 0)) == 3


ROUND = {"roundof": "job", "compare": "key", "expectedoffsets": "none"}


@pytest.mark.parametrize(("options", "entries"), [({}, 1), (ROUND, 0)], ids=["load", "round"])
def test_a_definite_error_cancels_its_run_until_the_driver_ends_it(plan, run_task, path, options, entries):
    """A round of append_if_unchanged is an exception: the next round needs the rows of the other tasks."""
    columns = [*CLAIMING.fields[:-1], ENDING["partition"]]
    writer, cancelled = plan(StructType(columns), partitions="2", **options), Path(path, "_log", "cancelled")

    def reject():
        message = run_task(writer, 0, claiming(0, "ab", -5, None))
        assert message.rejection.kind == "BAD_EXPECTED_OFFSET"
        assert [each.stem for each in cancelled.glob("*")] == [writer.task.run] * entries
        return message

    writer.abort([reject(), None])
    assert not list(cancelled.glob("*"))
    with pytest.raises(ExpectedOffsetError) as raised:
        writer.commit([reject()])
    assert not list(cancelled.glob("*"))
    assert raised.value.appended_rows == {}


@pytest.mark.parametrize(("kind", "known"), [(ConflictError, (0, 1, 2)), (InputChangedError, (0,))])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_task_that_meets_a_conflict_reports_all_of_its_partitions(kind, known, stopped):
    def append(pairs):
        next(pairs)
        raise RunCancelledError(Rejection(kind.kind, "x", (7,))) if stopped else kind("x")

    rows = ((partition, batch(partition, range(3))) for partition in range(3))
    cancelled: list[Rejection] = []
    report = attempted(rows, append, cancel=cancelled.append)
    assert report.rejection == Rejection(kind.kind, "x", (7,) if stopped else (0,))
    assert partitions_of_rejected([report, TaskReport(), None]) == set(known)
    assert cancelled == ([] if stopped else [report.rejection])


def test_rows_that_are_missing_because_of_a_cut_off_cancel_no_other_task():
    def append(pairs):
        next(pairs)
        raise MissingRowsError("x")

    cancelled: list[Rejection] = []
    report = attempted(iter([(0, batch(0, range(3)))]), append, cancel=cancelled.append)
    assert report.rejection == Rejection(InputChangedError.kind, "x", (0,))
    assert cancelled == []


def test_report_has_the_rows_without_a_key_of_each_partition():
    """Over all batches of a partition. A partition whose rows the task did not see has no count."""

    def append(pairs):
        assert [partition for partition, _ in pairs] == [0, 1, 0]
        found = [Progress("job", each, 6, "ab", 0, 6, 1, 0, True, 5, "run/0") for each in range(3)]
        return TaskReport(tuple(PartitionResult(each, 0, 0) for each in found))

    keys_found = pa.array([None, b"a", None, b"b", b"c"], pa.binary())
    keyless = batch(0, range(5)).set_column(0, "key", keys_found)
    report = attempted(iter([(0, keyless), (1, batch(1, range(3))), (0, keyless.slice(0, 1))]), append)
    assert [each.null_keys for each in report.results] == [3, 0, None]


def test_the_most_important_refusal_is_the_one_that_is_raised():
    def report(kind, *partitions):
        return TaskReport(rejection=Rejection(kind, f"of {kind}", partitions))

    error = worst_refusal([report("CONFLICT", 3), TaskReport(), report("NOT_ROUTED", 1, 2), report("STORAGE")])
    assert isinstance(error, NotRoutedError)
    assert str(error) == (
        "[NOT_ROUTED] of NOT_ROUTED Refused as well: the task with partition 3 (CONFLICT); a task (STORAGE)."
    )
    assert isinstance(error, ConditionalLogError)
    assert worst_refusal([TaskReport()]) is None


def test_a_row_that_expects_another_offset_refuses_its_chunk_by_name(plan, run, path):
    run(plan(partitions="2"), [batch(0, range(3))], [batch(1, range(2))])
    options = {"job": "load-2", "expectedoffsets": "none"}
    stale = [[claiming(0, "ab", 3, None)], [claiming(1, "cde", None, 2, 4)]]
    with pytest.raises(ConflictError) as raised:
        run(plan(CLAIMING, **options), *stale)
    error = raised.value
    assert (error.partition, error.row, error.expected_offset, error.actual_offset) == (1, 1, 2, 3)
    assert (len(keys(path, 0)), len(keys(path, 1))) == (5, 2)
    run(plan(CLAIMING, **options), stale[0], [claiming(1, "cde", 2, -1, 4)])
    assert (len(keys(path, 0)), len(keys(path, 1))) == (5, 5)
    run(plan(CLAIMING, **options), stale[0], [claiming(1, "cde", None, None, 9)])
    assert len(keys(path, 1)) == 5, "the rows that the log has are not claimed again"


def test_expected_offset_past_the_end_reports_possible_loss(plan, run, path):
    plan(partitions="2")
    with pytest.raises(TruncatedError) as raised:
        run(plan(CLAIMING), [claiming(0, "a", 7)])
    assert (raised.value.row, raised.value.expected_offset, raised.value.actual_offset) == (0, 7, 0)
    assert keys(path, 0) == []


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ((0, 1, 1, 3), "row 2 of the partition expects offset 1, and a row before it expects 1"),
        ((0, 5, None, 4), "row 3 of the partition expects offset 4, and a row before it expects 5"),
        ((0, -2, 2, 3), "row 1 of the partition expects offset -2"),
    ],
)
def test_invalid_expected_offset_is_rejected_before_any_append(plan, run, path, claims, said):
    rows = [claiming(0, "ab", *claims[:2]), claiming(0, "cd", *claims[2:])]
    with pytest.raises(ExpectedOffsetError, match=said):
        run(plan(CLAIMING, partitions="2"), rows)
    assert keys(path, 0) == []


def test_expected_offsets_of_rows_need_a_check(plan, tmp_path):
    with pytest.raises(SchemaError, match=r"checkExpectedOffsets is false .* Drop the column"):
        plan(CLAIMING, partitions="2", checkexpectedoffsets="false")
    with pytest.raises(SchemaError, match=r"a micro-batch has no offsets .* Drop the column"):
        plan(CLAIMING, partitions="2", batchid="5")
    assert list(tmp_path.iterdir()) == []


def test_an_atomic_write_is_one_chunk_for_each_partition_or_nothing(plan, run, path):
    atomic = {"atomic": "true", "maxrecordsperchunk": "5"}
    ends = [end_of(0), end_of(1)]
    task = [batch(0, range(3)), batch(1, range(4)), batch(0, range(3, 5)), batch(1, range(4, 6))]
    with pytest.raises(BatchTooLargeError, match=r"partition 1: .* as the option atomic requires\. None of them"):
        run(plan(ENDING, partitions="2", **atomic), [*task, *ends])
    assert (keys(path, 0), keys(path, 1)) == ([], [])
    (message,) = run(plan(ENDING, **atomic), [*task[:3], *ends])
    assert [result.progress.chunks for result in message.results] == [1, 1]
    assert (len(keys(path, 0)), len(keys(path, 1))) == (5, 4)


def test_incomplete_load_is_not_completed_with_atomic(plan, run, path, monkeypatch):
    monkeypatch.setattr(write_module, "task_number", lambda: 0)
    half_done(plan)
    with pytest.raises(JobMismatchError, match="the log has only 8 of the rows of job 'load-1'"):
        run(plan(ENDING, atomic="true"), [batch(0, range(12)), end_of(0)])
    run(plan(), [batch(0, range(12))])
    run(plan(ENDING, atomic="true"), [batch(0, range(12)), end_of(0)])
    assert len(keys(path, 0)) == 12


@pytest.mark.parametrize("options", [{"atomic": "true"}, ROUND], ids=["atomic", "round"])
def test_write_in_one_chunk_without_end_markers_is_rejected(plan, path, options):
    with pytest.raises(NotRoutedError):
        plan(partitions="2", **options)
    assert not Path(path).exists()


def test_write_by_key_checks_only_its_keys(plan, run, path):
    run(plan(partitions="2"), [batch(0, "ab")], [batch(1, "c")])
    by_key = {"compare": "key", "expectedoffsets": "none"}
    with pytest.raises(ConflictError) as raised:
        run(plan(CLAIMING, job="load-2", **by_key), [claiming(0, "xb", 0, 0)])
    assert (raised.value.row, raised.value.expected_offset) == (1, 0)
    run(plan(CLAIMING, job="load-2", **by_key), [claiming(0, "xb", 0, 2)])
    with pytest.raises(ConflictError) as raised:
        run(plan(job="load-3", compare="key", expectedoffsets='{"1": 0}'), [batch(1, "c")])
    assert (raised.value.row, raised.value.expected_offset) == (0, 0)
    run(plan(job="load-3", compare="key", expectedoffsets='{"1": 1}'), [batch(1, "c")])
    assert (keys(path, 0), keys(path, 1)) == ([b"a", b"b", b"x", b"b"], [b"c", b"c"])


def test_the_same_job_is_not_continued_under_another_condition(plan, run, path):
    run(plan(partitions="2"), [batch(0, "ab")])
    with pytest.raises(JobMismatchError, match="planned with compare=partition"):
        plan(compare="key")
