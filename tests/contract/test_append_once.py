from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cas import RECORDS, append_once, open_log, raise_for_outcome
from spark_cas.core.chunks import Chunk, ChunkLimits
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import ExpectedOffsetError, InputChangedError, TruncatedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Conflict, Truncated
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import pin_plan
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.memory_log import MemoryLog
from tests.support.raising import raises


@pytest.fixture(params=["memory", "directory"])
def log(request, tmp_path):
    with MemoryLog() if request.param == "memory" else open_log(str(tmp_path / "flights")) as log:
        log.create(2)
        yield log


def records(*values):
    rows = [{"key": b"N1", "value": value, "headers": None, "timestamp": None} for value in values]
    return pa.Table.from_pylist(rows, RECORDS)


def digest_of(*of):
    digest = RunningDigest()
    for batch in records(*of).to_batches():
        digest.update(batch)
    return digest.hexdigest()


def values(log, partition=0):
    bounds = log.bounds(partition)
    return [row for _, batch in log.read(partition, bounds.range) for row in batch.column("value").to_pylist()]


def test_the_right_expected_offset_appends_all_records_there(log):
    first = append_once(log, 0, records(b"a", b"b"), job="one", expected_offset=0)
    assert isinstance(first, Appended)
    second = append_once(log, 0, records(b"c"), job="two", expected_offset=first.range.end_offset)
    assert isinstance(second, Appended)
    assert (first.range.base_offset, second.range.base_offset, second.count) == (0, 2, 1)
    assert not second.resolved
    assert values(log) == [b"a", b"b", b"c"]
    assert values(log, 1) == []


def test_a_wrong_expected_offset_appends_nothing(log):
    append_once(log, 0, records(b"a", b"b"), job="one", expected_offset=0)
    assert append_once(log, 0, records(b"x"), job="two", expected_offset=1) == Conflict(1, 2, 0)
    assert append_once(log, 0, records(b"x"), job="three", expected_offset=7) == Truncated(7, 2)
    assert values(log) == [b"a", b"b"]


def test_rejected_append_succeeds_with_the_new_offset(log):
    append_once(log, 0, records(b"a"), job="one", expected_offset=0)
    refused = append_once(log, 0, records(b"x"), job="two", expected_offset=0)
    assert isinstance(refused, Conflict)
    appended = append_once(log, 0, records(b"x"), job="two", expected_offset=refused.actual)
    assert isinstance(appended, Appended)
    assert values(log) == [b"a", b"x"]


def test_without_an_expected_offset_records_go_to_the_end(log):
    append_once(log, 0, records(b"a"), job="one", expected_offset=0)
    assert isinstance(append_once(log, 0, records(b"b"), job="two", expected_offset=None), Appended)
    assert values(log) == [b"a", b"b"]


@pytest.mark.parametrize("compare", ["partition", "key"])
def test_minus_one_means_no_check_and_other_values_are_no_offset(log, compare):
    append_once(log, 0, records(b"a"), job="one", expected_offset=None)
    for bad in (-2, 2**63, -(2**64)):
        with raises(ExpectedOffsetError, row=0, expected_offset=bad):
            append_once(log, 0, records(b"x"), job="bad", expected_offset=bad, compare=compare)
    assert isinstance(append_once(log, 0, records(b"b"), job="two", expected_offset=-1, compare=compare), Appended)
    assert values(log) == [b"a", b"b"]


def test_numbers_of_numpy_are_accepted(log):
    zero: Any = np.int64(0)
    one: Any = np.int64(1)
    first = append_once(log, zero, records(b"a"), job="one", expected_offset=zero)
    both = append_once(
        log, {zero: records(b"b"), one: records(b"c")}, job="two", expected_offset={zero: one, one: zero}
    )
    assert all(isinstance(each, Appended) for each in (first, *both.values()))
    assert (values(log), values(log, 1)) == ([b"a", b"b"], [b"c"])


def test_repeated_append_is_detected(log):
    first = append_once(log, 0, records(b"a", b"b"), job="one", expected_offset=0)
    append_once(log, 0, records(b"c"), job="other", expected_offset=2)
    again = append_once(log, 0, records(b"a", b"b"), job="one", expected_offset=0)
    assert isinstance(first, Appended)
    assert isinstance(again, Appended)
    assert (again.range, again.count, again.resolved) == (first.range, 2, True)
    assert values(log) == [b"a", b"b", b"c"]


def test_append_is_detected_after_a_trim(log):
    first = append_once(log, 0, records(b"a"), job="one", expected_offset=0)
    append_once(log, 0, records(b"b"), job="two", expected_offset=1)
    log.trim(0, 1)
    again = append_once(log, 0, records(b"a"), job="one", expected_offset=0)
    assert isinstance(first, Appended)
    assert isinstance(again, Appended)
    assert (again.range, again.resolved, again.start_offset) == (first.range, True, 1)
    assert values(log) == [b"b"]


def test_the_same_records_for_another_partition_are_refused(log):
    append_once(log, 0, records(b"a"), job="one", expected_offset=0)
    with pytest.raises(InputChangedError) as raised:
        append_once(log, 1, records(b"a"), job="one", expected_offset=0)
    assert raised.value.job == "one"
    assert values(log, 1) == []


@pytest.mark.parametrize("expected", [0, None])
def test_call_for_another_partition_is_refused_before_the_first_one_appends(log, expected):
    crashes = FaultyLog(log, Fault("claim", 1, When.BEFORE))
    with pytest.raises(InjectedFaultError):
        append_once(crashes, 0, records(b"a"), job="one", expected_offset=expected)
    with pytest.raises(InputChangedError):
        append_once(log, 1, records(b"a"), job="one", expected_offset=expected)
    assert isinstance(append_once(log, 0, records(b"a"), job="one", expected_offset=expected), Appended)
    assert (values(log, 0), values(log, 1)) == ([b"a"], [])


@pytest.mark.parametrize("partition", [0, 1])
def test_a_load_that_was_interrupted_is_neither_joined_nor_called_complete(log, partition):
    plan = pin_plan(log, "load", ExpectedOffsets("end"))
    batches = records(b"a", b"b").to_batches()
    claim = log.claim(0, plan)
    first = Chunk(records(b"a"), 1, digest_of(b"a"), complete=False, task="run/0", time_ms=1)
    assert isinstance(log.append(claim, first), Appended)
    for value in (b"a", b"x"):
        with pytest.raises(InputChangedError, match="Nothing was appended"):
            append_once(log, partition, records(value), job="load", expected_offset=0)
    assert log.completion("load") is None
    append_rows(log, plan, [(0, batch) for batch in batches], task="again/0", limits=ChunkLimits())
    assert (values(log), values(log, 1)) == ([b"a", b"b"], [])


def test_other_records_under_the_same_job_are_refused(log):
    append_once(log, 0, records(b"a"), job="one", expected_offset=0)
    with raises(InputChangedError, job="one"):
        append_once(log, 0, records(b"b"), job="one", expected_offset=1)
    assert values(log) == [b"a"]


@pytest.mark.parametrize("bad", [records(), pa.table({"key": [b"a"]})], ids=["no records", "other schema"])
def test_records_that_cannot_be_appended_are_refused(log, bad):
    with pytest.raises(ValueError, match="at least one record in the schema"):
        append_once(log, 0, bad, job="one", expected_offset=0)
    assert log.jobs() == ()


def test_a_partition_that_the_log_does_not_have_is_refused(log):
    with pytest.raises(ValueError, match="partition 2"):
        append_once(log, 2, records(b"a"), job="one", expected_offset=0)
    assert log.jobs() == ()


BOTH = {0: records(b"a", b"b"), 1: records(b"c")}


def both(log):
    return [values(log, 0), values(log, 1)]


def test_several_partitions_are_appended_to_in_one_step(log):
    outcomes = append_once(log, BOTH, job="both", expected_offset={0: 0, 1: 0})
    assert [raise_for_outcome(outcomes[each], each).range for each in (0, 1)] == [
        OffsetRange(0, 2),
        OffsetRange(0, 1),
    ]
    assert both(log) == [[b"a", b"b"], [b"c"]]
    again = append_once(log, BOTH, job="both", expected_offset={0: 0, 1: 0})
    assert all(isinstance(each, Appended) and each.resolved for each in again.values())
    assert both(log) == [[b"a", b"b"], [b"c"]]


def test_of_several_partitions_all_refuse_or_none(log):
    append_once(log, 1, records(b"x"), job="other", expected_offset=0)
    assert append_once(log, BOTH, job="both", expected_offset={0: 0, 1: 0}) == {1: Conflict(0, 1, 0)}
    assert both(log) == [[], [b"x"]]
    assert append_once(log, BOTH, job="both", expected_offset={0: 4, 1: 0}) == {
        0: Truncated(4, 2),
        1: Conflict(0, 1, 0),
    }
    outcomes = append_once(log, BOTH, job="both", expected_offset={0: 0, 1: 1})
    assert all(isinstance(each, Appended) for each in outcomes.values())
    assert both(log) == [[b"a", b"b"], [b"x", b"c"]]


def test_partition_without_rows_must_match_its_expected_offset(log):
    append_once(log, 1, records(b"x"), job="other", expected_offset=0)
    assert append_once(log, {0: records(b"a")}, job="one", expected_offset={0: 0, 1: 0}) == {1: Conflict(0, 1, 0)}
    assert both(log) == [[], [b"x"]]
    assert isinstance(append_once(log, {0: records(b"a")}, job="one", expected_offset={0: 0, 1: 1})[0], Appended)
    assert both(log) == [[b"a"], [b"x"]]


@pytest.mark.parametrize(("step", "call"), [("append", 1), ("append", 2), ("put_entry", 1), ("record_completion", 1)])
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("same", [True, False])
def test_a_call_for_several_partitions_that_died_is_made_again(log, step, call, when, same):
    died = {0: records(b"a", b"b"), 1: records(b"c")} if same else {0: records(b"y"), 1: records(b"z")}
    with pytest.raises(InjectedFaultError):
        append_once(FaultyLog(log, Fault(step, call, when)), died, job="both", expected_offset={0: 0, 1: 0})
    decided = step == "record_completion" or (step == "put_entry" and when is When.AFTER)
    assert both(log) == (
        [[] for _ in died] if not decided else [each.column("value").to_pylist() for each in died.values()]
    )
    if decided and not same:
        with pytest.raises(InputChangedError):
            append_once(log, BOTH, job="both", expected_offset={0: 0, 1: 0})
        return
    outcomes = append_once(log, BOTH, job="both", expected_offset={0: 0, 1: 0})
    assert all(isinstance(each, Appended) for each in outcomes.values())
    assert both(log) == [[b"a", b"b"], [b"c"]]


def test_inconsistent_mappings_are_rejected_before_any_append(log):
    for given in (({}, {0: 0}), (BOTH, {0: 0}), (BOTH, {0: 0, 1: 0, 7: 0})):
        with pytest.raises(ValueError, match="partition"):
            append_once(log, given[0], job="bad", expected_offset=given[1])
    with pytest.raises(ExpectedOffsetError):
        append_once(log, BOTH, job="bad", expected_offset={0: 0, 1: -2})
    with pytest.raises(ValueError, match="one mapping to records and one to expected offsets"):
        append_once(log, BOTH, job="bad", expected_offset=0)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="its records and an expected offset"):
        append_once(log, 0, None, job="bad", expected_offset=0)
    assert log.plan("bad") is None


def test_two_loads_that_block_each_other_both_end(log, tmp_path, monkeypatch):
    """A call locks partitions with records before the others: each call holds one, and needs the other's."""
    meet, met, inner = Barrier(2, timeout=30), set[str](), type(log).append

    def meeting(self, claim, chunk):
        """Wait after the first chunk of a job until the other job has appended one too."""
        outcome = inner(self, claim, chunk)
        if claim.plan.job not in met:
            met.add(claim.plan.job)
            meet.wait()
        return outcome

    monkeypatch.setattr(type(log), "append", meeting)

    def append(mine):
        with log if isinstance(log, MemoryLog) else open_log(str(tmp_path / "flights")) as opened:
            return append_once(opened, {mine: records(b"x")}, job=f"job-{mine}", expected_offset={0: 0, 1: 0})

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(append, (0, 1)))
    assert met == {"job-0", "job-1"}
    appended = [each for each in outcomes if all(isinstance(found, Appended) for found in each.values())]
    assert len(appended) == 1, outcomes
    assert values(log, 0) + values(log, 1) == [b"x"]


def test_commit_of_another_call_is_no_conflict_after_later_records(log, tmp_path, monkeypatch):
    """The partition with only an expected offset matched it when the other call committed."""
    inner, given = type(log).claim, ({0: records(b"a")}, {0: 0, 1: 0})

    def overtaken(self, partition, plan):
        monkeypatch.setattr(type(log), "claim", inner)
        append_once(log, given[0], job="one", expected_offset=given[1])
        append_once(log, 1, records(b"since"), job="other", expected_offset=None)
        return inner(self, partition, plan)

    monkeypatch.setattr(type(log), "claim", overtaken)
    with log if isinstance(log, MemoryLog) else open_log(str(tmp_path / "flights")) as late:
        mine = append_once(late, given[0], job="one", expected_offset=given[1])
    assert isinstance(mine[0], Appended), mine
    assert (values(log, 0), values(log, 1)) == ([b"a"], [b"since"])


def append_to_one(log):
    return {0: append_once(log, 0, records(b"a"), job="one", expected_offset=0)}


def append_to_both(log):
    return append_once(log, {0: records(b"a"), 1: records(b"a")}, job="one", expected_offset={0: 0, 1: 0})


@pytest.mark.parametrize("step", ["claim", "append"])
@pytest.mark.parametrize("append", [append_to_one, append_to_both])
def test_commit_of_another_call_is_detected_after_an_expansion(log, tmp_path, monkeypatch, append, step):
    """The call reports no conflict either, because the record at its offset belongs to its own job."""
    inner = getattr(type(log), step)

    def overtaken(self, *given):
        monkeypatch.setattr(type(log), step, inner)
        append(log)
        expand_log(log, 3)
        return inner(self, *given)

    monkeypatch.setattr(type(log), step, overtaken)
    with log if isinstance(log, MemoryLog) else open_log(str(tmp_path / "flights")) as late:
        mine = append(late)
    assert all(isinstance(each, Appended) and each.resolved for each in mine.values()), mine
    assert [values(log, each) for each in mine] == [[b"a"]] * len(mine)


def test_commit_of_another_call_after_the_last_check_is_no_conflict(log):
    """The other call has not recorded its completion yet."""
    given = ({0: records(b"a")}, {0: 0, 1: 0})

    def overtake():
        killed = FaultyLog(log, Fault("record_completion", 1, When.BEFORE))
        with pytest.raises(InjectedFaultError):
            append_once(killed, given[0], job="one", expected_offset=given[1])
        append_once(log, 1, records(b"since"), job="other", expected_offset=None)

    late = FaultyLog(log, Fault("bounds_of", 3, When.BEFORE, overtake))
    mine = append_once(late, given[0], job="one", expected_offset=given[1])
    assert isinstance(mine[0], Appended), mine
    assert (values(log, 0), values(log, 1)) == ([b"a"], [b"since"])


def test_committed_append_is_not_rejected_for_later_records(log):
    """It reports that the log may have lost the records since."""

    def lose():
        append_once(log, 1, records(b"since"), job="other", expected_offset=None)
        raise TruncatedError("the log ends before it.")

    losing = FaultyLog(log, Fault("put_entry", 1, When.AFTER, lose))
    with pytest.raises(TruncatedError, match="ends before it"):
        append_once(losing, {0: records(b"a")}, job="one", expected_offset={0: 0, 1: 0})
    assert (values(log, 0), values(log, 1)) == ([b"a"], [b"since"])


def test_commit_between_the_check_and_the_claim_is_detected(log, tmp_path, monkeypatch):
    inner, others = type(log).claim, []

    def overtaken(self, partition, plan):
        monkeypatch.setattr(type(log), "claim", inner)
        others.append(append_once(log, 0, records(b"a"), job="one", expected_offset=0))
        return inner(self, partition, plan)

    monkeypatch.setattr(type(log), "claim", overtaken)
    with log if isinstance(log, MemoryLog) else open_log(str(tmp_path / "flights")) as late:
        mine = append_once(late, 0, records(b"a"), job="one", expected_offset=0)
    assert values(log) == [b"a"]
    assert isinstance(mine, Appended)
    assert [each.range for each in others if isinstance(each, Appended)] == [mine.range]
    assert mine.resolved
