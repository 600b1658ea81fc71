import pyarrow as pa
import pytest

from spark_cas import append_once
from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import InputChangedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import Completion
from spark_cas.core.records import RECORDS
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.support.memory_log import MemoryLog


def batch(value):
    row = {"key": b"k", "value": value, "headers": None, "timestamp": None}
    return pa.RecordBatch.from_pylist([row], RECORDS)


def test_a_run_whose_rows_another_run_did_not_complete_is_no_success():
    log = MemoryLog()
    log.create(2)
    plan = pin_plan(log, "job", ExpectedOffsets("end"))
    one = append_rows(log, plan, [(0, batch(b"a"))], task="one/0", limits=ChunkLimits())
    complete_job(log, plan, one)
    both = append_rows(log, plan, [(0, batch(b"a")), (1, batch(b"b"))], task="two/0", limits=ChunkLimits())
    with pytest.raises(
        InputChangedError, match=r"completed by another run .* partitions 1\. .* 2 rows of job 'job' are"
    ):
        complete_job(log, plan, both)


@pytest.mark.parametrize("complete", [False, True])
def test_run_with_other_rows_reports_its_appends(complete):
    log = MemoryLog()
    log.create(3)
    plan = pin_plan(log, "job", ExpectedOffsets("end"))
    one = append_rows(log, plan, [(0, batch(b"a"))], task="one/0", limits=ChunkLimits())
    other = append_rows(log, plan, [(1, batch(b"b")), (2, batch(b"c"))], task="two/0", limits=ChunkLimits())
    if complete:
        record_beside(log, plan, one)
    told = r"partition 0 holds 1 rows .* appended before .* partitions 1, 2\. .* 3 rows of job 'job' are in the log"
    with pytest.raises(InputChangedError, match=told):
        complete_job(log, plan, other)
    again = append_rows(log, plan, [(1, batch(b"b"))], task="three/0", limits=ChunkLimits())
    with pytest.raises(InputChangedError, match=r"partition 0 .* attempt appended nothing\. .* 3 rows of job 'job'"):
        complete_job(log, plan, again)


def record_beside(log, plan, results):
    """Record the completion by a driver that did not see the latest append of another driver."""
    log.record_completion(Completion(plan.job, plan.log_id, plan.layout_epoch, results, 1))


def test_second_of_two_concurrent_drivers_expects_existing_rows(monkeypatch):
    log = MemoryLog()
    log.create(1)
    first = pin_plan(log, "job", ExpectedOffsets("none"))
    monkeypatch.setattr(log, "plan", lambda _: None)  # it checked before the first driver recorded its plan
    second = pin_plan(log, "job", ExpectedOffsets("none"))
    assert second == first
    assert (first.rejoined, second.rejoined) == (False, True)


@pytest.mark.parametrize("several", [False, True])
def test_stale_metadata_does_not_reject_an_added_partition(monkeypatch, several):
    log, records = MemoryLog(), pa.Table.from_batches([batch(b"a")])
    before = log.create(1)
    expand_log(log, 2)
    known = log.layouts()
    told = iter([before])
    monkeypatch.setattr(log, "layout", lambda: next(told, known.layout))
    monkeypatch.setattr(log, "layouts", lambda *_: known)
    if several:
        found = append_once(log, {0: records, 1: records}, job="job", expected_offset={0: None, 1: 0})
    else:
        found = {1: append_once(log, 1, records, job="job", expected_offset=0)}
    assert isinstance(found[1], Appended)
    assert next(told, None) is None
    with pytest.raises(ValueError, match="partition 2 was named"):
        append_once(log, 2, records, job="other", expected_offset=0)
