"""Writers that are suspended during an expansion of an object log, and stores that lose the expansion's requests."""

import json

import pytest

from spark_cas.core.errors import FormatError, StorageError
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import LayoutChanged
from spark_cas.log.expanding import expand_log
from spark_cas.log.objects import documents, paths
from tests.objects.flaky_store import applied_and_refused, applied_but_unclear, lost, refused_for_nothing
from tests.objects.places import flaky_log, reopened
from tests.support.loads import crash_after_chunks, rows_of, run_job
from tests.support.writing import TIME_MS, JobWriter, append_foreign, plan_of, table_of, values_in


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("others", ["", "y"])
@pytest.mark.parametrize("mode", ["end", "none"])
def test_late_put_is_neither_at_nor_after_a_threshold(mode, others, trimmed):
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "sleeper", mode))
    writer.must_append("a")

    def late(create, path, data):
        other = reopened(log)
        expand_log(other, 4)
        if others:
            append_foreign(other, 0, *others)
        if trimmed:
            other.trim(0, other.bounds(0).end_offset)
        return create(path, data)

    store.on_create = [("partition=", late)]
    refused = writer.append(table_of("x"))
    if not (trimmed and others and mode == "end"):
        assert refused == LayoutChanged(0, 1)
    assert "x" not in values_in(reopened(log), 0)
    assert writer.append(table_of("x")) == LayoutChanged(0, 1)
    (expansion,) = reopened(log).layouts().expansions
    assert expansion.thresholds[0] == 2
    assert reopened(log).bounds(0).end_offset == 2 + len(others)


@pytest.mark.parametrize("fault", [applied_but_unclear, applied_and_refused, lost, refused_for_nothing])
@pytest.mark.parametrize("where", ["begun.json", "partition=00000", "partition=00001", "_log/layout/"])
def test_expansion_has_one_threshold_per_partition_for_each_put_fault(where, fault):
    log, store = flaky_log(2)
    append_foreign(log, 0, *"ab")
    store.on_create = [(where, fault)]
    expand_log(log, 4)
    assert store.on_create == []
    (expansion,) = reopened(log).layouts().expansions
    assert expansion.thresholds == (3, 1)
    assert [log.bounds(each) for each in range(4)] == [Bounds(0, 3), Bounds(0, 1), Bounds(0, 0), Bounds(0, 0)]


def test_a_store_that_refuses_leaves_an_expansion_that_the_same_call_finishes():
    log, store = flaky_log(2)

    def refuse(create, path, data):
        raise StorageError("no space left")

    store.on_create = [("partition=00001", refuse)]
    with pytest.raises(StorageError, match="no space left"):
        expand_log(log, 4)
    assert expand_log(log, 4).partitions == 4


def test_progress_is_read_past_the_end_of_a_layout():
    log, _ = flaky_log()
    crash_after_chunks(log, "job", rows_of(7, 0), 1)
    progress = log.progress(0, "job")
    expand_log(log, 4)
    append_foreign(log, 0, "x")
    assert progress is not None
    assert reopened(log).progress(0, "job") == progress


def test_offset_of_a_time_is_read_past_the_end_of_a_layout():
    log, _ = flaky_log()
    append_foreign(log, 0, "a")
    expand_log(log, 4)
    assert log.offset_since(0, TIME_MS + 1) is None
    append_foreign(log, 0, "b")
    expand_log(log, 8)
    assert reopened(log).offset_since(0, TIME_MS) == 0
    assert reopened(log).offset_since(1, TIME_MS) is None
    log.trim(0, 2)
    assert reopened(log).offset_since(0, TIME_MS) == 2


def test_a_log_whose_last_records_were_trimmed_keeps_the_ends_of_its_layouts():
    log, _ = flaky_log()
    append_foreign(log, 0, *"ab")
    expand_log(log, 4)
    assert log.trim(0, 3) == Bounds(2, 3)
    assert values_in(reopened(log), 0) == []
    run_job(log, "job", rows_of(3, 0))
    assert values_in(reopened(log), 0) == rows_of(3, 0)[0]


@pytest.mark.parametrize("path", [paths.layout(1), paths.intent(2)])
def test_records_of_another_version_are_reported(path):
    log, store = flaky_log(2)
    expand_log(log, 4)
    fields = documents.decode(store.inner.get(paths.layout(1)) or b"", "it")
    store.inner.overwrite(path, documents.encode({**fields, "more": 1}))
    with pytest.raises(FormatError, match="other"):
        log.layouts()
    assert json.dumps(fields, sort_keys=True).endswith('"partitions": 4, "thresholds": [1, 1]}')
