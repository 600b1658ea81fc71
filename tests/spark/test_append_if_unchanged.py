"""`append_if_unchanged` appends or returns each row, depending on whether its key has changed."""

from dataclasses import replace

import pytest
from pyspark.sql import functions as sf

from spark_cas import append_if_unchanged, append_once, open_log
from spark_cas.core.errors import (
    ExpectedOffsetError,
    InputChangedError,
    JobMismatchError,
    LayoutChangedError,
    OptionError,
    ProgressLostError,
    SchemaError,
    TruncatedError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Fenced
from spark_cas.core.partitioner import partition_of
from spark_cas.core.plan import BY_KEY
from spark_cas.log import clock
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.objects import ObjectLog
from spark_cas.spark.writing import append_if_unchanged as module
from tests.contract.whole import bounded
from tests.long import full
from tests.spark.addresses import KAFKA
from tests.support.writing import JobWriter, append_foreign, records_in, table_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def log(path):
    """A log with the keys a, b, c, a, b in one partition, whose end offset is 5."""
    with open_log(path) as log:
        log.create(1)
        for key in "abcab":
            append_foreign(log, 0, key)
        yield log


def rows(spark, *given):
    return spark.createDataFrame(given, "key string, value string, expected_offset bigint")


def told(frame, *columns):
    return sorted(
        tuple(bytes(each).decode() if isinstance(each, bytes | bytearray) else each for each in row)
        for row in frame.select(*columns).collect()
    )


def test_rows_are_split_by_changes_of_their_keys(spark, log, path):
    given = rows(
        spark, ("a", "stale", 3), ("a", "new", 4), ("c", "c1", 3), ("c", "c2", 3), ("d", "d", 0), ("b", "any", -1)
    )
    done = append_if_unchanged(given, {"path": path, "job": "job"})
    assert told(done.rejected, "key", "value", "expected_offset", "actual_offset", "actual_value") == [
        ("a", "stale", 3, 3, "a")
    ]
    appended = told(done.appended, "value", "offset")
    assert sorted(offset for _, offset in appended) == [5, 6, 7, 8, 9]
    assert [value for value, _ in appended] == ["any", "c1", "c2", "d", "new"]
    append_foreign(log, 0, "c")
    again = append_if_unchanged(given, {"path": path, "job": "job"})
    assert told(again.appended, "value", "offset") == appended
    assert told(again.rejected, "value", "actual_offset") == [("stale", 3)]
    assert len(records_in(log, 0)) == 11
    with pytest.raises(InputChangedError, match="job 'job' appended 5 rows, and now 4 hold"):
        append_if_unchanged(given.where("key != 'd'"), {"path": path, "job": "job"})


def test_a_job_of_a_similar_name_or_another_kind_is_another_job(spark, log, path):
    for name in ("fix-1", "fix.unchanged.2"):
        assert isinstance(append_once(log, 0, table_of(["other"]), job=name, expected_offset=None), Appended)
    done = append_if_unchanged(rows(spark, ("d", "mine", 0)), {"path": path, "job": "fix"})
    assert told(done.appended, "value", "offset") == [("mine", 7)]
    with pytest.raises(InputChangedError, match="job 'fix' appended 1 rows, and these are not the same"):
        append_if_unchanged(rows(spark, ("d", "other", 0)), {"path": path, "job": "fix"})
    with pytest.raises(JobMismatchError, match="is a call of append_if_unchanged, and its name was now"):
        append_once(log, 0, table_of(["more"]), job="fix", expected_offset=None, compare="key")
    append_once(log, 0, table_of(["other"]), job="busy", expected_offset=None, compare="key")
    with pytest.raises(JobMismatchError, match="is a write of its own, and its name was now given to a call"):
        append_if_unchanged(rows(spark, ("e", "mine", 0)), {"path": path, "job": "busy"})
    assert len(records_in(log, 0)) == 9


def test_partitions_are_done_in_different_rounds(spark, path, monkeypatch):
    append = module._Rounds._append

    def overtaken(rounds, frame):
        monkeypatch.setattr(module._Rounds, "_append", append)
        append_foreign(log, of["a"], "a")
        return append(rounds, frame)

    with open_log(path) as log:
        log.create(2)
        of = dict(zip("abcd", partition_of(table_of("abcd").to_batches()[0], 2).to_pylist(), strict=True))
        (same,), (other,) = ([key for key in "bcd" if (of[key] == of["a"]) is alike][:1] for alike in (True, False))
        monkeypatch.setattr(module._Rounds, "_append", overtaken)
        given = rows(spark, ("a", "late", 0), (same, "second", 0), (other, "first", 0))
        for _ in range(2):
            done = append_if_unchanged(given, {"path": path, "job": "job"})
            assert told(done.rejected, "value", "partition", "actual_offset") == [("late", of["a"], 0)]
            assert told(done.appended, "value", "partition", "offset") == sorted(
                [("first", of[other], 0), ("second", of["a"], 1)]
            )
        completion = log.completion("job")
        assert completion is not None
        assert completion.rows == 2


@pytest.mark.parametrize("same_call", [False, True])
def test_key_that_changes_before_the_append_is_judged_twice(spark, log, path, monkeypatch, *, same_call):
    """With ``same_call``, another call of the job detects the change first."""
    append = module._Rounds._append
    given, call = rows(spark, ("a", "late", 5), ("b", "fine", 5)), {"path": path, "job": "job"}

    def overtaken(rounds, frame):
        monkeypatch.setattr(module._Rounds, "_append", append)
        append_foreign(log, 0, "a")
        if same_call:
            append_if_unchanged(given, call)
        return append(rounds, frame)

    monkeypatch.setattr(module._Rounds, "_append", overtaken)
    done = append_if_unchanged(given, call)
    assert told(done.rejected, "value", "actual_offset") == [("late", 5)]
    assert told(done.appended, "value", "offset") == [("fine", 6)]
    assert len(records_in(log, 0)) == 7


@pytest.fixture
def two(address):
    """A log with two partitions and the keys a to h, on one of the two backends."""
    with open_log(address) as log:
        placed = partition_of(table_of("abcdefgh").to_batches()[0], 2)
        for key, at in zip("abcdefgh", placed.to_pylist(), strict=True):
            append_foreign(log, at, key)
        yield log


@pytest.mark.parametrize("address", [KAFKA, *full("embedded")], indirect=True)
def test_as_a_whole_all_that_holds_is_visible_in_one_step(spark, two, address, monkeypatch):
    """A key of one partition changes before the first append, so that append adds no row to either partition."""
    append, seen = module._Rounds._append, []

    def overtaken(rounds, frame):
        seen.append(sum(map(len, bounded(two).values())))
        if len(seen) == 1:
            append_foreign(two, of["a"], "a")
        return append(rounds, frame)

    monkeypatch.setattr(module._Rounds, "_append", overtaken)
    of = {key: at for at, keys in bounded(two).items() for key in keys}
    assert set(of.values()) == {0, 1}
    ends = [bounds.end_offset for bounds in two.bounds_of(range(2), waiting=True)]
    given = rows(spark, *((key, f"{key}2", ends[at]) for key, at in of.items()))
    for _ in range(2):
        done = append_if_unchanged(given, {"path": address, "job": "job", "atomic": "load"})
        assert told(done.rejected, "value") == [("a2",)]
        assert told(done.appended, "value") == [(f"{key}2",) for key in "bcdefgh"]
    # The counts before the first and the second append of the first call.
    assert seen[:2] == [8, 9]
    assert sum(map(len, bounded(two).values())) == 16


@pytest.mark.parametrize("address", [KAFKA, *full("embedded")], indirect=True)
def test_call_that_was_overtaken_appends_nothing(spark, two, address):
    """A task of the first call is suspended, while a second call appends its rows."""
    key, end = bounded(two)[0][0], len(records_in(two, 0))
    suspended = JobWriter(two, begin(two), 0)
    done = append_if_unchanged(rows(spark, (key, "once", None)), {"path": address, "job": "job"})
    assert isinstance(suspended.append(table_of(["once"])), Fenced)
    assert told(done.appended, "value") == [("once",)]
    assert len(records_in(two, 0)) == end + 1


@pytest.mark.parametrize("address", [KAFKA], indirect=True)
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (("h", "x", 999), TruncatedError),
        ((None, "x", 0), ExpectedOffsetError),
        (("h", "x", -2), ExpectedOffsetError),
    ],
)
def test_wrong_row_is_reported_before_any_row_is_appended(spark, two, address, wrong, error):
    before = sum(map(len, bounded(two).values()))
    given = rows(spark, *((each, "new", None) for each in "abcdefg"), wrong)
    with pytest.raises(error):
        append_if_unchanged(given, address)
    assert sum(map(len, bounded(two).values())) == before


def begin(log, days=0, name="job", **fields):
    """Record a plan of the job that is some days old, and return it."""
    plan = pin_plan(log, name, ExpectedOffsets("none"), compare=BY_KEY, round_of="job", record=False)
    return log.record_plan(replace(plan, pinned_at_ms=clock.now_ms() - days * 86_400_000, **fields))


@pytest.mark.parametrize("address", [KAFKA], indirect=True)
def test_expired_rows_of_the_job_are_not_returned_as_rejected(spark, two, address):
    """A row of another writer represents a row of the job without a ledger entry."""
    end = two.bounds(0).end_offset
    key = bounded(two)[0][0]
    given, call = rows(spark, (key, "new", end)), {"path": address, "job": "job"}
    begin(two, days=1)
    append_foreign(two, 0, key)
    assert told(append_if_unchanged(given, call).rejected, "key") == [(key,)]
    two.forget(two.plan("job"))
    ends = (end, two.bounds(1).end_offset)
    # Earlier builds had a plan for each round.
    rounds = [begin(two, days=8, name=f"job.unchanged.{number}", end_offsets=ends) for number in (1, 2)]
    with pytest.raises(ProgressLostError):
        append_if_unchanged(given, call)
    for each in rounds:
        two.forget(each)
    plan = begin(two, days=8, end_offsets=ends)
    with pytest.raises(ProgressLostError):
        append_if_unchanged(given, call)
    # The ledger has the entry of the other partition.
    JobWriter(two, plan, 1).must_append("x", complete=True)
    with pytest.raises(ProgressLostError):
        append_if_unchanged(given, call)


@pytest.mark.parametrize("address", [KAFKA], indirect=True)
def test_more_rows_of_a_complete_job_are_rejected_at_once(spark, two, address, monkeypatch):
    """The first call has no row of the partition of the new row, so the ledger has no digest of it."""
    append, calls = module._Rounds._append, []

    def counted(rounds, frame):
        calls.append(frame)
        return append(rounds, frame)

    (first, *_), (second, *_) = bounded(two)[0], bounded(two)[1]
    call = {"path": address, "job": "job"}
    append_if_unchanged(rows(spark, (first, "new", None)), call)
    monkeypatch.setattr(module._Rounds, "_append", counted)
    with pytest.raises(InputChangedError):
        append_if_unchanged(rows(spark, (first, "new", None), (second, "more", None)), call)
    assert len(calls) == 1


@pytest.mark.parametrize("address", [KAFKA], indirect=True)
def test_job_of_an_earlier_topic_of_this_name_is_reported_as_such(spark, two, address):
    begin(two, days=8, log_id="another", end_offsets=(1000, 0))
    with pytest.raises(TruncatedError):
        append_if_unchanged(rows(spark, ("a", "new", -1)), {"path": address, "job": "job"})


def test_expected_offset_that_is_older_than_removed_tombstones_is_returned(spark, log, path, monkeypatch):
    # Only the driver is patched. This covers the driver's check; the contract tests cover the check of the append.
    monkeypatch.setattr(ObjectLog, "tombstones_kept_ms", lambda _: 24 * 60 * 60 * 1000)
    given = rows(spark, ("d", "old", 3), ("e", "now", 5), ("a", "changed", 1))
    for _ in range(2):
        done = append_if_unchanged(given, {"path": path, "job": "job"})
        assert told(done.appended, "value", "offset") == [("now", 5)]
        rejected = done.rejected.orderBy("value").select("value", "actual_offset").collect()
        assert [tuple(row) for row in rejected] == [("changed", 3), ("old", None)]


def test_unsupported_call_is_rejected(spark, path, log):
    given = rows(spark, ("a", "x", 3))
    with pytest.raises(SchemaError, match=r"needs a column expected_offset \(bigint\)"):
        append_if_unchanged(given.drop("expected_offset"), path)
    with pytest.raises(SchemaError, match=r"needs a column expected_offset \(bigint\)"):
        append_if_unchanged(given.withColumn("expected_offset", sf.lit("3")), path)
    with pytest.raises(ExpectedOffsetError, match="a row of partition 0 expects offset -2"):
        append_if_unchanged(rows(spark, ("a", "x", -2)), path)
    with pytest.raises(OptionError, match="decides on option atomic itself"):
        append_if_unchanged(given, {"path": path, "atomic": "false"})
    with pytest.raises(OptionError, match="decides on option compare itself"):
        append_if_unchanged(given, {"path": path, "compare": "key"})
    with pytest.raises(OptionError, match="only by='key'"):
        append_if_unchanged(given, path, by="partition")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="decides on option lockWaitTimeout itself"):
        append_if_unchanged(given, {"path": path, "lockWaitTimeout": "5s"})


def test_rows_that_were_placed_for_fewer_partitions_are_never_appended_to_more(spark, log, path, monkeypatch):
    given = rows(spark, ("d", "d", 0), ("e", "e", 0), ("f", "f", 0))
    append = module._Rounds._append

    def expanding(self, *arguments):
        expand_log(log, log.layout().partitions + 1)
        return append(self, *arguments)

    append_if_unchanged(given, {"path": path, "job": "before"})
    monkeypatch.setattr(module._Rounds, "_append", expanding)
    with pytest.raises(LayoutChangedError, match="since job 'meanwhile' began"):
        append_if_unchanged(
            given.withColumn("expected_offset", sf.lit(8).cast("bigint")), {"path": path, "job": "meanwhile"}
        )
    monkeypatch.undo()
    with pytest.raises(LayoutChangedError, match="since job 'before' began"):
        append_if_unchanged(given, {"path": path, "job": "before"})
    assert [len(records_in(log, each)) for each in range(2)] == [8, 0]
