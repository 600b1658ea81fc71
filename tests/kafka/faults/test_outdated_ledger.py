"""A group coordinator that does not know it was demoted. It returns old ledger entries until its next write."""

import threading

import pytest

from spark_cas import append_once
from spark_cas.core.errors import InputChangedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Fenced
from spark_cas.core.plan import BY_KEY
from spark_cas.log.expanding import expand_log
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.append.atomic_append import GroupWriter
from spark_cas.log.load.after_expansion import earlier_rows
from spark_cas.log.load.append_by_key import PartitionAppends
from spark_cas.log.load.planning import complete_job, job_progress, pin_plan
from tests.kafka.clients import committed_values
from tests.kafka.faulted import JOB
from tests.kafka.proxy import rules
from tests.kafka.proxy.frames import Api
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import LIMITS, load
from tests.support.writing import JobWriter, claim_of, table_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def depose(proxied):
    """A function that makes the coordinator repeat its first response to each request, until its next write."""
    deposed = threading.Event()

    def is_deposed(_request):
        return deposed.is_set()

    def to_write(_request):
        deposed.clear()
        return False

    proxied.proxy.add(rules.Fault.OLD_RESPONSE, Api.OFFSET_FETCH, times=None, deposed_for=is_deposed)
    proxied.proxy.add(rules.Fault.WATCH, Api.OFFSET_COMMIT, where=to_write)
    return deposed.set


def at(offset):
    return ExpectedOffsets.parse(f'{{"0": {offset}}}')


def test_an_append_that_is_made_again_at_another_offset_is_there_once(proxied, proxied_topic, direct, log, depose):
    plan = pin_plan(direct, JOB, at(0))
    assert log.progress(0, JOB) is None
    assert claim_of(log, 0, plan).progress is None
    depose()
    end = JobWriter(direct, plan).must_append("a", complete=True).range.end_offset
    outcome = append_once(log, 0, table_of("a"), job=JOB, expected_offset=end)
    assert isinstance(outcome, Appended)
    assert committed_values(proxied.direct, proxied_topic) == ["a"]


def test_rows_appended_before_an_expansion_are_removed_from_the_input(direct, log, depose):
    writer = JobWriter(direct, pin_plan(direct, JOB, ExpectedOffsets("none")))
    assert log.progress(0, JOB) is None
    depose()
    writer.must_append("a")
    expand_log(direct, 2)
    [told] = earlier_rows(log, JOB)
    assert told.rows == (1,)
    depose()
    assert pin_plan(log, JOB, ExpectedOffsets("none"), earlier=(told,)).earlier == (told,)


def test_a_job_that_was_forgotten_is_not_complete(direct, log, depose):
    JobWriter(direct, pin_plan(direct, JOB, ExpectedOffsets("end"))).must_append("a", complete=True)
    assert log.progress(0, JOB).complete
    direct.forget(direct.plan(JOB))
    plan = pin_plan(direct, JOB, ExpectedOffsets("end"))
    depose()
    assert claim_of(log, 0, plan).progress is None


def test_attempt_overtaken_by_another_is_fenced_without_conflict(direct, log, depose):
    plan = pin_plan(direct, JOB, at(0))
    assert log.progress(0, JOB) is None
    depose()
    JobWriter(direct, plan).must_append("a")
    mine = JobWriter(log, plan)
    assert isinstance(mine.append(table_of("a")), Fenced)


def test_key_of_another_attempt_is_fenced_without_conflict(direct, log, depose):
    plan = pin_plan(direct, JOB, ExpectedOffsets("none"), compare=BY_KEY)
    mine = JobWriter(log, plan)
    depose()
    JobWriter(direct, plan).must_append("a")
    outcome, _ = PartitionAppends(log, 0).append(mine.claim, mine.chunk(table_of("a"), claims=[0]))
    assert isinstance(outcome, Fenced)


def test_job_whose_input_lacks_appended_rows_is_not_complete(direct, log, depose):
    expand_log(direct, 2)
    writer = JobWriter(direct, pin_plan(direct, JOB, ExpectedOffsets("none")), 1)
    again = pin_plan(log, JOB, ExpectedOffsets("none"))
    assert log.progress(1, JOB) is None
    depose()
    writer.must_append("a")
    results = load(log, again, {0: ["b"]}, task="run/0", limits=LIMITS, wait=1.0)
    depose()
    with pytest.raises(InputChangedError, match="holds 1 rows"):
        complete_job(log, again, results)


def test_call_rejected_for_new_partitions_returns_the_commit_of_another(direct, log, depose, monkeypatch):
    claim, plan = KafkaLog.claim, pin_plan(direct, JOB, at(0))
    assert log.progress(0, JOB) is None

    def overtaken(self, *given):
        monkeypatch.setattr(KafkaLog, "claim", claim)
        depose()
        JobWriter(direct, plan).must_append("a", complete=True)
        direct.begin_expansion(direct.layout(), 2)
        return claim(self, *given)

    monkeypatch.setattr(KafkaLog, "claim", overtaken)
    outcome = append_once(log, 0, table_of("a"), job=JOB, expected_offset=0)
    assert isinstance(outcome, Appended)
    assert outcome.resolved


@pytest.mark.parametrize("step", [(KafkaLog, "claim"), (GroupWriter, "_send")])
def test_atomic_call_rejected_for_new_partitions_returns_the_commit_of_another(
    direct, log, depose, monkeypatch, step
):
    """The claim is rejected because of new partitions, or the send is fenced."""
    inner = getattr(*step)
    expand_log(direct, 2)
    given = {0: table_of("a"), 1: table_of("a")}
    assert job_progress(log, JOB) == ()

    def overtaken(self, *asked, **options):
        monkeypatch.setattr(*step, inner)
        depose()
        killed = FaultyLog(direct, Fault("record_completion", 1, When.BEFORE))
        with pytest.raises(InjectedFaultError):
            append_once(killed, given, job=JOB, expected_offset={0: 0, 1: 0})
        direct.begin_expansion(direct.layout(), 3)
        return inner(self, *asked, **options)

    monkeypatch.setattr(*step, overtaken)
    found = append_once(log, given, job=JOB, expected_offset={0: 0, 1: 0})
    assert all(isinstance(each, Appended) and each.resolved for each in found.values()), found
