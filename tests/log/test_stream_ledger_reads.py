"""The check of a stream before each batch: it reads all partitions, unless this would delay the batch too long."""

import time

import pytest

from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.append_micro_batch import begin_stream, ledger_before
from tests.support.batches import run_batch
from tests.support.memory_log import MemoryLog

PARTITIONS = 8


class Slow(MemoryLog):
    seconds = 0.0
    asked = 0

    def progress_of(self, partitions, job, group="", **how):
        self.asked += 1
        time.sleep(self.seconds)
        return super().progress_of(partitions, job, group, **how)


@pytest.fixture
def log():
    log = Slow()
    log.create(PARTITIONS)
    run_batch(log, 0, {each: ["a"] for each in range(PARTITIONS)})
    log.asked = 0
    return log


@pytest.fixture
def plan(log):
    return begin_stream(log, "stream", ExpectedOffsets.parse("none"))


@pytest.mark.parametrize(("at_once", "looks"), [(True, 1), (False, PARTITIONS)])
def test_it_finds_all(log, plan, at_once, looks):
    log.ledger_at_once = at_once
    assert len(ledger_before(log, plan)) == PARTITIONS
    assert log.asked == looks


def test_read_ends_at_its_timeout_with_partial_results(log, plan):
    log.seconds = 0.2
    assert len(ledger_before(log, plan)) == log.asked < PARTITIONS
