"""Writers and readers that are suspended during a trim: an object put at a freed name is not part of the log."""

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.errors import ChunkDamagedError, StorageError, TrimmedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Conflict, Fenced, ProgressLost, Unknown
from spark_cas.log.objects import partition, paths
from spark_cas.log.objects.store_replies import PutReply
from tests.objects.flaky_store import lost
from tests.objects.places import at_call, flaky_log, reopened
from tests.support.writing import JobWriter, append_foreign, claim_of, plan_of, table_of, values_in


def chunk_names(log):
    return reopened(log)._store.below("partition=00000")


def others_append_and_trim(log):
    """Append three chunks at offsets 0, 2 and 4, and trim all but the last."""
    for values in ["ab", "cd", "efg"]:
        append_foreign(reopened(log), 0, *values)
    reopened(log).trim(0, 7)


def sleep_before_the_put(log, store):
    """Delay the next put of a chunk until others have appended and trimmed."""

    def late(create, path, data):
        others_append_and_trim(log)
        return create(path, data)

    store.on_create = [("partition=", late)]


@pytest.mark.parametrize("rows", ["x", "xx", "xxx", "xxxx", "xxxxxx"])
def test_a_writer_that_slept_before_its_put_is_refused(rows):
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "sleeper"))

    sleep_before_the_put(log, store)
    assert writer.append(table_of(rows)) == Conflict(0, 7, 4)
    assert chunk_names(log) == [paths.chunk(0, 0), paths.chunk(0, 4)], "its chunk exists under a freed name"
    for each in (log, reopened(log)):
        assert each.bounds(0) == Bounds(4, 7)
        assert values_in(each, 0) == ["e", "f", "g"]
        assert each.progress(0, "sleeper") is None
        assert claim_of(each, 0, writer.claim.plan).progress is None
    append_foreign(log, 0, "h")
    assert values_in(reopened(log), 0) == ["e", "f", "g", "h"]
    log.trim(0, 8)
    assert chunk_names(log) == [paths.chunk(0, 7)], "the next trim deletes the chunk below the start"


@pytest.mark.parametrize("mode", ["end", "none"])
@pytest.mark.parametrize("rows", ["x", "xx", "xxxxx", "xxxxxxxxx"])
def test_hints_to_a_late_chunk_do_not_mislead_readers(mode, rows):
    """The hints name offset 0. One attempt of the job had a chunk there, and another now puts other rows."""
    log, store = flaky_log()
    plan = plan_of(log, "job", mode)
    log.record_plan(plan)
    sleeper = JobWriter(log, plan, task="run/0-late")
    first = JobWriter(reopened(log), plan, task="run/0-first")

    def late(create, path, data):
        first.must_append("a", "b")  # only this append leaves hints
        first.must_append("c", "d")
        first.must_append("e")
        first.must_append("f")
        reopened(log).trim(0, 5)
        return create(path, data)

    store.on_create = [("partition=", late)]
    assert isinstance(sleeper.append(table_of(rows)), Fenced | Conflict)
    for each in (log, reopened(log)):
        assert each.bounds(0) == Bounds(5, 6)
        assert values_in(each, 0) == ["f"]
        assert each.progress(0, "job") == first.claim.progress
        assert claim_of(each, 0, plan).progress == first.claim.progress


def test_the_chunk_of_a_sleeper_does_not_stand_in_for_one_that_is_lost():
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "sleeper"))

    sleep_before_the_put(log, store)
    assert isinstance(writer.append(table_of("xxxxxxx")), Conflict)
    append_foreign(log, 0, "h")
    store.inner.delete([paths.chunk(0, 4)])
    with pytest.raises(ChunkDamagedError, match=paths.chunk(0, 4)):
        values_in(reopened(log), 0)


def test_chunk_trimmed_before_its_writer_read_it_is_acknowledged():
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job"))

    def slow(create, path, data):
        reply = create(path, data)
        append_foreign(reopened(log), 0, "b")
        append_foreign(reopened(log), 0, "c")
        reopened(log).trim(0, 3)
        return reply

    store.on_create = [("partition=", slow)]
    outcome = writer.append(table_of("a"))
    assert isinstance(outcome, Appended)
    assert (outcome.range, outcome.start_offset, outcome.resolved) == (OffsetRange(0, 1), 2, False)
    append_foreign(log, 0, "d")
    assert values_in(log, 0) == values_in(reopened(log), 0) == ["c", "d"]


def test_a_lost_reply_and_a_trimming_do_not_make_a_refusal():
    """The chunk was stored and trimmed, and the retry puts it at its freed name: the append still succeeded."""
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job"))

    def stored_and_trimmed(create, path, data):
        create(path, data)
        append_foreign(reopened(log), 0, "b")
        append_foreign(reopened(log), 0, "c")
        reopened(log).trim(0, 3)
        return PutReply.UNCLEAR

    store.on_create = [("partition=", stored_and_trimmed), ("partition=", lost)]
    outcome = writer.append(table_of("a"))
    assert isinstance(outcome, Appended)
    assert outcome.range == OffsetRange(0, 1)
    assert values_in(log, 0) == values_in(reopened(log), 0) == ["c"]


def test_outcome_without_a_record_is_unknown(monkeypatch):
    monkeypatch.setattr(partition, "_REMEMBERED", 1)
    log, store = flaky_log()
    writer = JobWriter(log, plan_of(log, "job"))

    sleep_before_the_put(log, store)
    assert isinstance(writer.append(table_of("x")), Unknown)
    again = claim_of(log, 0, writer.claim.plan)
    assert again.progress is None
    assert JobWriter(log, writer.claim.plan).append(table_of("x")) == Conflict(0, 7, 4)


@pytest.mark.parametrize("number", range(1, 12))
def test_a_trimming_during_a_claim_hides_no_progress(number):
    """A claim without expected offsets would append its own rows twice if it missed them."""
    log, store = flaky_log()
    plan = plan_of(log, "job", "none")
    log.record_plan(plan)
    writer = JobWriter(reopened(log), plan)
    for value in "abcdef":
        writer.must_append(value)
    store.inner.delete([paths.job_hint("job", 0), paths.end_hint(0)])
    trim_now = at_call(number, lambda: reopened(log).trim(0, 6))
    store.before |= {"get_end": trim_now, "below": trim_now}
    assert claim_of(log, 0, plan).progress == writer.claim.progress


@pytest.mark.parametrize("number", range(1, 12))
def test_a_trimming_during_an_append_hides_no_other_attempt(number):
    log, store = flaky_log()
    plan = plan_of(log, "job", "none")
    sleeper = JobWriter(log, plan, task="run/0-late")
    first = JobWriter(reopened(log), plan, task="run/0-first")
    for value in "abcdef":
        first.must_append(value)
    trim_now = at_call(number, lambda: reopened(log).trim(0, 6))
    store.before |= {"get_end": trim_now, "below": trim_now}
    assert sleeper.append(table_of("a")) == Fenced("run/0-first")
    store.before.clear()
    assert values_in(log, 0)[-1] == "f"


@pytest.mark.parametrize("planned", [True, False])
def test_every_process_keeps_progress_of_trimmed_rows_if_the_job_has_a_plan(planned):
    log, _ = flaky_log()
    plan = plan_of(log, "job")
    if planned:
        log.record_plan(plan)
    writer = JobWriter(log, plan)
    writer.must_append("a")
    append_foreign(log, 0, "b")
    append_foreign(log, 0, "c")
    assert log.progress(0, "job") is not None
    log.trim(0, 3)
    expected = writer.claim.progress if planned else None
    assert (log.progress(0, "job"), reopened(log).progress(0, "job")) == (expected, expected)


def test_a_trim_that_dies_before_it_deletes_has_trimmed():
    log, store = flaky_log()
    for values in ["ab", "cd", "efg"]:
        append_foreign(log, 0, *values)

    def die(_):
        raise StorageError("gone")

    store.before["delete"] = die
    with pytest.raises(StorageError):
        log.trim(0, 5)
    assert len(chunk_names(log)) == 3
    for each in (log, reopened(log)):
        assert each.bounds(0) == Bounds(4, 7)
        assert values_in(each, 0) == ["e", "f", "g"]
        with pytest.raises(ValueError, match="4 to 7"):
            list(each.read(0, OffsetRange(0, 7)))
    store.before.clear()
    assert log.trim(0, 5) == Bounds(4, 7)
    assert chunk_names(log) == [paths.chunk(0, 4)]


def test_two_trims_at_once_leave_the_higher_start():
    log, store = flaky_log()
    for value in "abcdef":
        append_foreign(log, 0, value)

    def overtaken(create, path, data):
        reopened(log).trim(0, 5)
        return create(path, data)

    store.on_create = [("_log/start", overtaken)]
    assert log.trim(0, 2) == Bounds(5, 6)
    assert values_in(reopened(log), 0) == ["f"]
    assert chunk_names(log) == [paths.chunk(0, 5)]


def a_sleepers_put(log, store, plan):
    """Return the put of a suspended attempt at offset 2: (path, bytes)."""
    append_foreign(log, 0, "a", "b")
    held = []

    def hold(_create, path, data):
        held.append((path, bytes(data)))
        raise StorageError("asleep")

    store.on_create = [("partition=", hold)]
    with pytest.raises(StorageError):
        JobWriter(log, plan, task="run/0-late").append(table_of(["x", "y"]))
    append_foreign(log, 0, "c", "d")
    append_foreign(log, 0, "e", "f")
    return held[0]


@pytest.mark.parametrize("number", range(1, 16))
def test_a_sleepers_put_during_a_claim_is_no_progress(number):
    """Its chunk fits between its neighbors, but this range has been trimmed, so its rows are not in the log."""
    log, store = flaky_log()
    plan = log.record_plan(plan_of(log, "job", "none"))
    path, data = a_sleepers_put(log, store, plan)

    def trim_and_wake():
        reopened(log).trim(0, 6)
        store.inner.create(path, data)

    before = at_call(number, trim_and_wake)
    store.before |= {"get": before, "get_end": before, "below": before}
    claimed = log.claim(0, plan)
    assert claimed == ProgressLost("job") or (isinstance(claimed, Claim) and claimed.progress is None)
    store.before.clear()
    assert log.progress(0, "job") is None


@pytest.mark.parametrize("woken", [True, False])
def test_trimmed_read_fails_without_rows_of_a_late_chunk(woken):
    log, store = flaky_log()
    path, data = a_sleepers_put(log, store, plan_of(log, "job", "none"))
    reading = log.read(0, OffsetRange(0, 4))
    assert next(reading)[1].column("value").to_pylist() == [b"a", b"b"]
    reopened(log).trim(0, 6)
    if woken:
        store.inner.create(path, data)
    with pytest.raises(TrimmedError, match="Read again"):
        next(reading)


def test_old_starts_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(partition, "_REMEMBERED", 3)
    log, store = flaky_log()
    for offset in range(8):
        append_foreign(log, 0, "a")
        log.trim(0, offset)
    assert len(store.inner.below(paths.starts(0))) == 3
    assert reopened(log).bounds(0) == Bounds(7, 8)


def append_twice_and_trim(log):
    """Append two chunks and trim all before the last, including every chunk that another process knew of."""
    other = reopened(log)
    append_foreign(other, 0, "x")
    append_foreign(other, 0, "y")
    other.trim(0, other.bounds(0).end_offset - 1)


def test_trim_after_a_read_of_the_start_is_no_gap():
    log, store = flaky_log()
    other = reopened(log)
    for value in "abc":
        append_foreign(other, 0, value)
    _, newest = other._partition(0).find_end()
    assert newest is not None
    other._partition(0).write_hint(paths.end_hint(0), newest)

    def meanwhile(_path):
        del store.before["below after"]
        append_twice_and_trim(other)

    store.before["below after"] = meanwhile
    assert log.bounds(0) == Bounds(4, 5)
    assert not store.before


def test_chunk_trimmed_after_a_listing_is_not_missing():
    log, store = flaky_log()
    for value in "abc":
        append_foreign(log, 0, value)
    append_twice_and_trim(reopened(log))  # the log object has not read these changes
    listed = []

    def listing(path):
        listed.append(path.startswith("partition="))

    def meanwhile(_path):
        if any(listed):
            store.before.clear()
            append_twice_and_trim(log)

    store.before |= {"below": listing, "get_end": meanwhile}
    assert log.bounds(0) == Bounds(6, 7)
    assert not store.before


def test_lookup_by_time_skips_chunks_trimmed_meanwhile(monkeypatch):
    log, _ = flaky_log()
    for values in ["ab", "cd", "efg"]:
        append_foreign(log, 0, *values)
    chunks = partition.PartitionChunks
    read = chunks.read

    def after_trimming(*arguments):
        monkeypatch.setattr(chunks, "read", read)
        reopened(log).trim(0, 4)
        return read(*arguments)

    monkeypatch.setattr(chunks, "read", after_trimming)
    assert log.offset_since(0, 0) == 4
