"""Forget a job while another process reuses its name: the records of the new job stay."""

from dataclasses import replace

import pytest

from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import Plan
from spark_cas.log.jobs import forget, forget_job, older_jobs
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.log.objects import ObjectLog
from spark_cas.log.objects.store_replies import NotNowError
from tests.objects.places import flaky_log, reopened
from tests.support.loads import Rows, load, run_job
from tests.support.writing import JobWriter, plan_of, table_of, values_in

IN_TWO_HOURS_MS = 2 * 3_600_000


def recorded(log: ObjectLog, by: str) -> Plan:
    """Record a plan of the job by this driver."""
    return log.record_plan(replace(plan_of(log, "job"), pinned_by=by))


def test_retried_delete_keeps_a_new_plan():
    log, store = flaky_log()
    recorded(log, "old")
    made: list[Plan] = []

    def reply_lost(path):
        if path.endswith("plan.json") and not made:
            store.inner.delete([path])
            made.append(recorded(reopened(log), "new"))
            raise NotNowError("no reply")

    store.before["delete"] = reply_lost
    forget_job(log, "job", 0, force=True)
    assert made == [reopened(log).plan("job")]


def test_a_job_that_another_forgot_meanwhile_is_let_be():
    log, _ = flaky_log()
    plan = recorded(log, "old")
    done = complete_job(log, plan, ())
    (kept,) = older_jobs(log, done.completed_at_ms + IN_TWO_HOURS_MS, 0)
    assert forget(reopened(log), kept)
    assert not forget(log, kept)
    new = recorded(reopened(log), "new")
    complete_job(log, new, ())
    assert not forget(log, kept)
    assert (log.plan("job"), log.completion("job") is not None) == (new, True)


@pytest.mark.parametrize("values", ["abc", ""])
def test_late_attempt_of_a_forgotten_job_does_not_close_a_new_one(values):
    log, _ = flaky_log()
    rows: Rows = {0: list(values)}
    plan = pin_plan(log, "job", ExpectedOffsets.parse("end"))
    asleep = JobWriter(reopened(log), plan, task="asleep/0")
    if values:
        asleep.must_append(*values)
    done = complete_job(log, plan, load(log, plan, rows))
    forget_job(log, "job", done.completed_at_ms + IN_TWO_HOURS_MS)
    assert isinstance(asleep.append(table_of(""), complete=True), Appended)
    new = {0: list(values or "d")}
    assert run_job(reopened(log), "job", new).rows == len(new[0])
    assert values_in(log, 0) == [*values, *new[0]]


def test_each_object_of_many_is_deleted_by_itself():
    log, store = flaky_log()
    paths = ["a", "b", "c"]
    asked: list[str] = []

    def hiccup(path):
        asked.append(path)
        if asked.count(path) == 1:
            raise NotNowError("no reply")

    store.before["delete"] = hiccup
    log._store.delete(paths)
    assert asked == ["a", "a", "b", "b", "c", "c"]
