"""The records that appends by key read, and the conclusions they draw from changes of the log."""

import time
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConflictError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, KeyConflict, Truncated
from spark_cas.core.plan import BY_KEY
from spark_cas.core.records import RECORDS
from spark_cas.log.load import attempts
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import pin_plan
from tests.support.faults import Fault, FaultyLog, When
from tests.support.loads import void
from tests.support.memory_log import MemoryLog
from tests.support.writing import TIME_MS, append_foreign, table_of, values_in

DAY_MS = 24 * 60 * 60 * 1000
SINGLE = ChunkLimits(max_records=1)


class CountedLog(MemoryLog):
    """A log that counts the records read."""

    records = 0

    def read(self, partition, offsets, columns=tuple(RECORDS.names)):
        for base, records in super().read(partition, offsets, columns):
            self.records += records.num_rows
            yield base, records


class CompactedLog(MemoryLog):
    """A log that keeps tombstones for a day."""

    def tombstones_kept_ms(self):
        return DAY_MS


def created(log):
    log.create(1)
    return log


def load_keys(log, keys, *, expected="end", job="job"):
    plan = pin_plan(log, job, ExpectedOffsets.parse(expected), compare=BY_KEY)
    (batch,) = table_of(keys).to_batches()
    return append_rows(log, plan, [(0, batch)], task="run/0", limits=SINGLE)


def test_each_record_of_others_is_read_once_and_the_jobs_own_never():
    log = created(CountedLog())
    append_foreign(log, 0, *"xyz")
    load_keys(log, [f"{row}" for row in range(50)], expected='{"0": 1}')
    assert log.records == 2
    assert len(values_in(log, 0)) == 53


def test_read_records_reject_a_later_chunk():
    log = created(MemoryLog())
    append_foreign(log, 0, *"xyz")
    with pytest.raises(ConflictError) as raised:
        load_keys(log, "ay", expected='{"0": 1}')
    assert (raised.value.row, raised.value.expected_offset, raised.value.actual_offset) == (1, 1, 1)
    assert values_in(log, 0) == [*"xyz", "a"]


def test_on_a_quiet_compacted_log_a_job_is_not_refused_by_its_own_plan():
    log = created(CompactedLog())
    append_foreign(log, 0, "old")
    load_keys(log, "abc")
    assert values_in(log, 0) == ["old", "a", "b", "c"]


def test_old_expected_offset_proves_nothing_on_a_compacted_log():
    log = created(CompactedLog())
    append_foreign(log, 0, *"xy")
    with pytest.raises(
        ConflictError,
        match="key a has no record from offset 1 on, but this cannot be proven: "
        "retention or compaction may have removed records",
    ):
        load_keys(log, "a", expected='{"0": 1}')
    plan = pin_plan(log, "late", ExpectedOffsets("end"), compare=BY_KEY)
    append_foreign(log, 0, "z")
    late = replace(plan, pinned_at_ms=plan.pinned_at_ms - DAY_MS // 2)
    with pytest.raises(
        ConflictError,
        match="key a has no record from offset 2 on, but this cannot be proven: "
        "retention or compaction may have removed records",
    ):
        append_rows(log, late, [(0, table_of("a").to_batches()[0])], task="run/0", limits=SINGLE)
    append_rows(log, plan, [(0, table_of("a").to_batches()[0])], task="run/1", limits=SINGLE)
    assert values_in(log, 0) == [*"xyz", "a"]


@pytest.mark.parametrize("ahead_ms", [0, DAY_MS])
def test_a_record_that_is_stamped_ahead_does_not_show_that_a_claim_is_young(ahead_ms):
    log = created(CompactedLog())
    for key, timestamp in (("x", time.time_ns() // 1_000_000 + ahead_ms), ("y", TIME_MS)):
        (record,) = table_of([key]).to_pylist()
        table = pa.Table.from_pylist([{**record, "timestamp": timestamp}], RECORDS)
        assert isinstance(append_once(log, 0, table, job=key, expected_offset=None), Appended)
    outcome = keyed_once(log, 1)
    if ahead_ms:
        assert outcome == KeyConflict(0, "k", 1, None, 2)
    else:
        assert isinstance(outcome, Appended)


def keyed_once(log, expected_offset):
    return append_once(log, 0, table_of("k"), job="job", expected_offset=expected_offset, compare="key")


def three_and(*faults):
    """Return a log with x, y, z at offsets 0 to 2, and the same log with faults."""
    log = created(MemoryLog())
    for key in "xyz":
        append_foreign(log, 0, key)
    return log, FaultyLog(log, *(fault(log) for fault in faults))


def test_log_that_became_shorter_is_truncated():
    def lose_records(log):
        at = log._partitions[0]
        at.chunks, at.end_offset = at.chunks[:1], 1
        append_foreign(log, 0, "k")

    log, faulty = three_and(
        lambda log: Fault("append", 1, When.BEFORE, lambda: void(append_foreign(log, 0, "faster"))),
        # The first two calls are of the plan and of the first attempt.
        lambda log: Fault("bounds_of", 3, When.BEFORE, lambda: lose_records(log)),
    )
    assert keyed_once(faulty, 1) == Truncated(3, 2)
    assert values_in(log, 0) == ["x", "k"]


def test_tail_trimmed_during_a_read_is_read_from_its_new_start():
    _, faulty = three_and(lambda log: Fault("read", 1, When.BEFORE, lambda: void(log.trim(0, 2))))
    assert keyed_once(faulty, 1) == KeyConflict(0, "k", 1, None, 3)


def test_read_error_is_not_treated_as_a_trim():
    def fail():
        msg = "something else"
        raise ValueError(msg)

    log, faulty = three_and(lambda _: Fault("read", 1, When.BEFORE, fail))
    with pytest.raises(ValueError, match="something else"):
        keyed_once(faulty, 1)
    assert values_in(log, 0) == ["x", "y", "z"]


def test_a_writer_that_others_are_always_faster_than_gives_up(set_timing):
    set_timing(longest_pause=0)
    tries = attempts._RIVAL_TRIES
    faults = [
        lambda log, call=call: Fault("append", call, When.BEFORE, lambda: void(append_foreign(log, 0, "other")))
        for call in range(1, tries + 1)
    ]
    log, faulty = three_and(*faults)
    with pytest.raises(
        StorageError, match=r"partition 0: nothing of this chunk is in the log: other writers were fast"
    ):
        keyed_once(faulty, 0)
    assert faulty.calls["append"] == tries
    assert values_in(log, 0) == ["x", "y", "z", *["other"] * tries]
    assert isinstance(keyed_once(log, 0), Appended)
