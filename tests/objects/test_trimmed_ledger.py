"""The ledger entries that a trim keeps: crashes, concurrent and older trims, and damaged chunks."""

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.errors import StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import ProgressLost
from spark_cas.core.plan import PartitionResult
from spark_cas.log import clock
from spark_cas.log.jobs import forget_job
from spark_cas.log.load.atomic_load import abort_left
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.log.objects import documents, paths
from tests.contract.whole import ROWS, pin, run_whole, tasks
from tests.objects.places import at_call, flaky_log, reopened
from tests.support.writing import JobWriter, append_foreign, claim_of, values_in

NONE = ExpectedOffsets.parse("none")


def begin(log, job="job", *values):
    """Plan a job without expected offsets, and append a chunk for each value."""
    plan = pin_plan(log, job, NONE)
    writer = JobWriter(log, plan)
    for value in values:
        writer.must_append(value)
    return plan, writer.claim.progress


def kept_jobs(log):
    """Return the jobs whose entries the newest trim recorded."""
    start = log.bounds(0).start_offset
    return {each.job for each in reopened(log)._partition(0).trimmed_ledger(start).ledger}


def claim(log, plan):
    return reopened(log).claim(0, plan)


def trim_by_older_version(log, offset):
    """Trim as the versions that do not keep ledger entries."""
    store = log._store
    store.put_once(paths.start(0, offset), documents.encode({"start_offset": offset, "trimmed": []}))
    store.delete([paths.chunk(0, base) for base in log._partition(0).base_offsets() if base < offset])


def test_only_entries_of_unfinished_jobs_are_kept():
    log, _ = flaky_log()
    begin(log, "unfinished", "a")
    plan, progress = begin(log, "complete", "b")
    assert progress is not None
    complete_job(log, plan, (PartitionResult(progress, 0, 0),))
    begin(log, "forgotten", "c")
    begin(log, "forgotten-later", "d")
    forget_job(log, "forgotten", clock.now_ms(), force=True)
    append_foreign(log, 0, "x")
    log.trim(0, 4)
    assert kept_jobs(log) == {"unfinished", "forgotten-later"}
    forget_job(log, "forgotten-later", clock.now_ms(), force=True)
    append_foreign(log, 0, "y")
    log.trim(0, 5)
    assert kept_jobs(log) == {"unfinished"}


@pytest.mark.parametrize("step", ["create", "delete"])
def test_trim_that_was_killed_loses_no_entry(step):
    log, store = flaky_log()
    plan, progress = begin(log, "job", "a", "b")
    append_foreign(log, 0, "x")

    def killed(path):
        if path.startswith(("_log/start", "partition=")):
            raise StorageError("killed")

    store.before[step] = killed
    with pytest.raises(StorageError, match="killed"):
        log.trim(0, 2)
    store.before.clear()
    assert reopened(log).bounds(0).start_offset == (0 if step == "create" else 2)
    assert claim_of(reopened(log), 0, plan).progress == progress
    assert reopened(log).trim(0, 2).start_offset == 2
    assert claim_of(reopened(log), 0, plan).progress == progress
    assert store.inner.below("partition=00000") == [paths.chunk(0, 2)]


@pytest.mark.parametrize("number", range(1, 12))
def test_entries_survive_a_concurrent_trim(number):
    log, store = flaky_log()
    (one, first), (two, second) = begin(log, "one", "a", "b"), begin(log, "two", "c")
    for value in "xyz":
        append_foreign(log, 0, value)
    meanwhile = at_call(number, lambda: reopened(log).trim(0, 4))
    store.before |= {"get": meanwhile, "get_end": meanwhile}
    log.trim(0, 5)
    store.before.clear()
    assert log.bounds(0).start_offset == 5
    assert (claim_of(reopened(log), 0, one).progress, claim_of(reopened(log), 0, two).progress) == (first, second)


@pytest.mark.parametrize("damaged", [True, False])
def test_entries_before_a_damaged_chunk_are_not_known(damaged):
    log, store = flaky_log()
    before, _ = begin(log, "before", "a", "b", "c")
    idle, _ = begin(log, "idle")
    append_foreign(log, 0, "x")
    later, _ = begin(log, "later")
    after, progress = begin(log, "after", "d")
    append_foreign(log, 0, "y")
    store.inner.delete([paths.chunk(0, 3)])
    if damaged:
        store.inner.overwrite(paths.chunk(0, 3), b"torn")
    for trims in range(2):
        log.trim(0, 5 + trims)
        assert claim(log, before) == ProgressLost("before"), "the damaged chunk may have its newest entry"
        assert claim(log, idle) == ProgressLost("idle")
        assert isinstance(claim(log, later), Claim)
        assert claim_of(reopened(log), 0, after).progress == progress
        append_foreign(log, 0, "z")


def test_entries_before_a_trim_by_an_older_version_are_not_known():
    log, _ = flaky_log()
    before, _ = begin(log, "before", "a")
    append_foreign(log, 0, "x")
    trim_by_older_version(log, 1)
    after, progress = begin(log, "after", "b")
    for trims in range(3):
        assert claim(log, before) == ProgressLost("before")
        assert claim_of(reopened(log), 0, after).progress == progress
        append_foreign(log, 0, "y")
        log.trim(0, 3 + trims)
    append_foreign(log, 0, "z")
    trim_by_older_version(log, log.bounds(0).end_offset - 1)
    assert claim(log, after) == ProgressLost("after")


def test_claim_during_trims_reads_the_entry_of_the_newest():
    """The record of the start is removed between the read of the bounds and the read of the record."""
    log, store = flaky_log()
    plan, progress = begin(log, "job", "a")
    append_foreign(log, 0, "x")
    log.trim(0, 1)

    def meanwhile(path):
        if path == paths.start(0, 1):
            store.before.clear()
            append_foreign(reopened(log), 0, "y")
            reopened(log).trim(0, 2)
            store.inner.delete([paths.start(0, 1)])

    store.before["get"] = meanwhile
    assert claim_of(log, 0, plan).progress == progress
    assert not store.before
    JobWriter(log, plan).must_append("b")
    assert values_in(log, 0) == ["y", "b"]


def test_rows_of_an_aborted_load_are_no_progress_after_a_trim():
    log, _ = flaky_log(3)
    tasks(log, pin(log, "job", "none"), ROWS)
    abort_left(log, "job")
    for partition in range(3):
        append_foreign(log, partition, "x")
        log.trim(partition, append_foreign(log, partition, "y").range.base_offset)
    assert run_whole(reopened(log), "job", expected="none").rows == 30
    assert [values_in(log, each) for each in range(3)] == [["y", *ROWS[each]] for each in range(3)]
