"""What appends by key read of the log, and what they take its changes for."""

from dataclasses import replace

import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConflictError
from spark_cas.core.plan import BY_KEY, ExpectedOffsets
from spark_cas.core.records import RECORDS
from spark_cas.log.loading import load_rows
from spark_cas.log.memory import MemoryLog
from spark_cas.log.planning import pin_plan
from spark_cas.testing.writing import append_foreign, table_of, values_in

DAY_MS = 24 * 60 * 60 * 1000
SINGLE = ChunkLimits(max_records=1)


class CountedLog(MemoryLog):
    """Counts the records that are read."""

    records = 0

    def read(self, partition, offsets, columns=tuple(RECORDS.names)):
        for base, records in super().read(partition, offsets, columns):
            self.records += records.num_rows
            yield base, records


class CompactedLog(MemoryLog):
    """Says that deletions are kept for a day."""

    def tombstones_kept_ms(self):
        return DAY_MS


def created(log):
    log.create(1)
    return log


def load_keys(log, keys, *, expected="end", job="job"):
    plan = pin_plan(log, job, ExpectedOffsets.parse(expected), compare=BY_KEY)
    (batch,) = table_of(keys).to_batches()
    return load_rows(log, plan, [(0, batch)], task="run/0", limits=SINGLE)


def test_each_record_of_others_is_read_once_and_the_jobs_own_never():
    log = created(CountedLog())
    append_foreign(log, 0, *"xyz")
    load_keys(log, [f"{row}" for row in range(50)], expected='{"0": 1}')
    assert log.records == 2
    assert len(values_in(log, 0)) == 53


def test_on_a_quiet_compacted_log_a_job_is_not_refused_by_its_own_plan():
    log = created(CompactedLog())
    append_foreign(log, 0, "old")
    load_keys(log, "abc")
    assert values_in(log, 0) == ["old", "a", "b", "c"]


def test_on_a_compacted_log_a_claim_on_what_was_there_long_before_the_plan_proves_nothing():
    log = created(CompactedLog())
    append_foreign(log, 0, *"xy")
    with pytest.raises(
        ConflictError, match="key a has no record from offset 1 on, but records may have been removed"
    ):
        load_keys(log, "a", expected='{"0": 1}')
    plan = pin_plan(log, "late", ExpectedOffsets("end"), compare=BY_KEY)
    append_foreign(log, 0, "z")
    late = replace(plan, pinned_at_ms=plan.pinned_at_ms - DAY_MS // 2)
    with pytest.raises(
        ConflictError, match="key a has no record from offset 2 on, but records may have been removed"
    ):
        load_rows(log, late, [(0, table_of("a").to_batches()[0])], task="run/0", limits=SINGLE)
    load_rows(log, plan, [(0, table_of("a").to_batches()[0])], task="run/1", limits=SINGLE)
    assert values_in(log, 0) == [*"xyz", "a"]
