"""Atomic loads in an object store: decisions during a read, lost responses, and the format."""

import gc
import json
import os
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_cas.core.errors import FencedError, FormatError, UndecidedError
from spark_cas.core.group import GroupOutcome, outcome_from_json
from spark_cas.core.outcome import Appended, Conflict
from spark_cas.core.recorded_fields import to_json
from spark_cas.log import clock
from spark_cas.log.deadline import cap_wait_on_others
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.atomic_load import abort_group, abort_left, commit_group
from spark_cas.log.load.planning import complete_job
from spark_cas.log.objects import ObjectLog, paths
from spark_cas.log.objects.local import LocalStore
from tests.contract.whole import ROWS, everything, pin, run_whole, tasks
from tests.objects.flaky_store import FlakyStore, applied_and_refused, applied_but_unclear, lost
from tests.objects.places import flaky_log, local_log, reopened
from tests.support.loads import Rows
from tests.support.writing import append_foreign, table_of, values_in

NOTHING: Rows = {0: [], 1: [], 2: []}


def ends(log):
    return [bounds.end_offset for bounds in log.bounds_of(range(3), waiting=True)]


def when_partition_2_is_looked_at(store, act):
    """Call ``act`` once, after the read of partition 1 and before that of partition 2."""

    def before(path):
        if path.startswith(("partition=00002", "_log/hints/end/partition=00002")):
            store.before.clear()
            act()

    store.before = dict.fromkeys(("get", "get_end", "below", "below after"), before)


def test_load_committed_between_two_reads_is_in_all_bounds():
    log, store = flaky_log(3)
    when_partition_2_is_looked_at(store, lambda: run_whole(reopened(log), "load"))
    assert ends(log) == [10, 10, 10]


def test_load_decided_between_two_reads_is_in_all_bounds_or_none():
    log, store = flaky_log(3)
    plan = pin(log, "load")
    results = tasks(log, plan, ROWS)
    when_partition_2_is_looked_at(store, lambda: commit_group(reopened(log), plan, results))
    assert ends(log) == [0, 0, 0]
    assert ends(log) == [10, 10, 10]


def test_load_decided_between_two_reads_is_in_all_ledgers():
    log, store = flaky_log(3)
    plan = pin(log, "load")
    results = tasks(log, plan, ROWS)
    when_partition_2_is_looked_at(store, lambda: commit_group(reopened(log), plan, results))
    assert [each.progress for each in results] == [*log.progress_of(range(3), "load")]


@pytest.mark.parametrize("fault", [lost, applied_but_unclear, applied_and_refused])
def test_a_reply_to_the_decision_that_is_lost_changes_nothing(fault):
    log, store = flaky_log(3)
    plan = pin(log, "load")
    results = tasks(log, plan, ROWS)
    store.on_create = [("_log/groups/", fault)]
    assert complete_job(log, plan, results).rows == 30
    assert everything(reopened(log)) == ROWS


@pytest.mark.parametrize(("decide", "told"), [(abort_group, Appended), (commit_group, Conflict)])
def test_append_after_a_load_conflicts_only_if_the_load_is_committed(decide, told):
    """A load appends at the expected offset after the read, and is decided before the retry reads again."""
    log, store = flaky_log(3)

    def overtaken(create, path, data):
        other = reopened(log)
        plan = pin(other, "load")
        results = tasks(other, plan, ROWS)
        decide(other, plan, *([results] if told is Conflict else []))
        return create(path, data)

    store.on_create = [(paths.chunk(0, 0), overtaken)]
    outcome = append_once(log, 0, table_of(["mine"]), job="mine", expected_offset=0)
    assert isinstance(outcome, told)
    assert values_in(reopened(log), 0) == (["mine"] if told is Appended else ROWS[0])


def test_chunk_of_an_aborted_run_fences_no_later_run():
    """The chunk was in flight when its group was aborted, and arrives before the chunk of the later run."""
    log, store = flaky_log(3)
    late: list[bytes] = []

    def killed(create, path, data):
        late.append(bytes(data))
        raise KeyboardInterrupt

    store.on_create = [(paths.chunk(0, 0), killed)]
    with pytest.raises(KeyboardInterrupt):
        tasks(log, pin(log, "load"), ROWS)
    abort_left(log, "load")

    def overtaken(create, path, data):
        create(path, late[0])
        return create(path, data)

    store.on_create = [(paths.chunk(0, 0), overtaken)]
    plan = pin(log, "load")
    assert complete_job(log, plan, tasks(log, plan, ROWS)).rows == 30
    assert everything(reopened(log)) == ROWS


def test_open_chunk_of_a_forgotten_plan_blocks_a_new_load_until_its_time_is_over(monkeypatch):
    """The plan was removed without an abort of its group, as by an older version."""
    log, _ = flaky_log(3)
    plan = pin(log, "load")
    tasks(log, plan, ROWS)
    log.forget(plan)
    with cap_wait_on_others(0), pytest.raises(UndecidedError, match="'load' was open"):
        run_whole(reopened(log), "load")
    now_ms = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms + 1000 * 3600)
    assert run_whole(reopened(log), "load").rows == 30
    assert everything(reopened(log)) == ROWS


def test_run_aborted_during_its_commit_is_fenced():
    log, store = flaky_log(3)
    plan = pin(log, "load")
    results = tasks(log, plan, ROWS)

    def aborted_first(create, path, data):
        abort_group(reopened(log), plan)
        return create(path, data)

    store.on_create = [("_log/groups/", aborted_first)]
    with pytest.raises(FencedError):
        complete_job(log, plan, results)
    assert everything(reopened(log)) == NOTHING


def header_in(root, partition, base_offset):
    metadata = pq.read_metadata(root / paths.chunk(partition, base_offset)).metadata
    checksum, header = metadata[b"spark_cas.header"].split(b" ", 1)
    assert checksum
    return json.loads(header)


def test_only_chunks_of_a_load_as_a_whole_have_the_newer_format(tmp_path):
    log = local_log(tmp_path)
    log.create(3)
    append_foreign(log, 0, "a")
    run_whole(log, "load")
    plain, grouped = header_in(tmp_path, 0, 0), header_in(tmp_path, 0, 1)
    assert (plain["format"], grouped["format"]) == (1, 2)
    assert {"group", "decide_by_ms"} == set(grouped) - set(plain)


def test_skipped_chunk_is_freed_before_the_next_is_read(tmp_path):
    log = local_log(tmp_path)
    log.create(1)
    plan = pin(log, "load")
    tasks(log, plan, {0: [os.urandom(200_000).hex()]})
    abort_group(log, plan)
    append_foreign(log, 0, "x")
    size = len(LocalStore(tmp_path).get(paths.chunk(0, 0)) or b"")
    gc.collect()
    before, held = pa.total_allocated_bytes(), {}
    store = FlakyStore(LocalStore(tmp_path))
    store.before["get"] = lambda path: held.update({path: pa.total_allocated_bytes() - before})
    reader = ObjectLog(log.spec, store)
    bounds = reader.bounds(0)
    assert [records.num_rows for _, records in reader.read(0, bounds.range, ())] == [1]
    assert held[paths.chunk(0, 1)] < size / 2


def test_bounds_of_some_partitions_ask_for_nothing_of_others():
    log, _ = flaky_log(3)
    run_whole(log, "load")
    assert [each.end_offset for each in log.bounds_of([1], waiting=True)] == [10]


def test_a_job_whose_group_was_aborted_has_another():
    log, _ = flaky_log(3)
    first = pin(log, "load")
    abort_group(log, first)
    second = pin(log, "load")
    assert replace(second, rejoined=first.rejoined) == first
    assert second.group != first.group
    abort_group(log, first)
    assert pin(log, "load").group == second.group, "a second abort of the first group does not abort the second"


def test_invalid_outcome_is_rejected():
    outcome = GroupOutcome(committed=True, ends=((0, 7), (2, 9)))
    assert outcome_from_json(to_json(outcome), "it") == outcome
    assert outcome_from_json('{"committed":true,"ends":[[0,7],[2,9]],"later":1}', "it") == outcome
    for text in ("{}", "[]", '{"committed":true}', '{"committed":true,"ends":[[1]]}', "no json"):
        with pytest.raises(FormatError, match="the outcome of group it"):
            outcome_from_json(text, "it")


def test_group_contains_records_below_its_ends():
    outcome = GroupOutcome(committed=True, ends=((0, 7),))
    assert [outcome.holds(0, 7), outcome.holds(0, 8), outcome.holds(1, 1)] == [True, False, False]
    assert [outcome.is_below(at) for at in ({0: 7}, {0: 6}, {1: 0})] == [True, False, True]
