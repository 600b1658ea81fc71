"""Rows are appended or returned, each for what happened to its key."""

import pytest
from pyspark.sql import functions as sf

from spark_cas import append_if_unchanged, open_log
from spark_cas.core.errors import InputChangedError, OptionError, SchemaError
from spark_cas.spark.writing import unchanged
from spark_cas.testing.writing import append_foreign, records_in

pytestmark = pytest.mark.spark


@pytest.fixture
def log(path):
    """a, b, c, a, b: one partition, ends at 5."""
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


def test_rows_are_split_by_what_happened_to_their_keys(spark, log, path):
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


def test_a_key_that_changes_before_the_append_is_judged_again(spark, log, path, monkeypatch):
    append = unchanged._Rounds._append

    def overtaken(rounds, frame, number):
        monkeypatch.setattr(unchanged._Rounds, "_append", append)
        append_foreign(log, 0, "a")
        return append(rounds, frame, number)

    monkeypatch.setattr(unchanged._Rounds, "_append", overtaken)
    done = append_if_unchanged(rows(spark, ("a", "late", 5), ("b", "fine", 5)), path)
    assert told(done.rejected, "value", "actual_offset") == [("late", 5)]
    assert told(done.appended, "value", "offset") == [("fine", 6)]


def test_what_it_cannot_do_is_refused(spark, path, log):
    given = rows(spark, ("a", "x", 3))
    with pytest.raises(SchemaError, match=r"needs a column expected_offset \(bigint\)"):
        append_if_unchanged(given.drop("expected_offset"), path)
    with pytest.raises(SchemaError, match=r"needs a column expected_offset \(bigint\)"):
        append_if_unchanged(given.withColumn("expected_offset", sf.lit("3")), path)
    with pytest.raises(OptionError, match="decides on option atomic itself"):
        append_if_unchanged(given, {"path": path, "atomic": "false"})
    with pytest.raises(OptionError, match="takes by='key'"):
        append_if_unchanged(given, path, by="partition")  # type: ignore[arg-type]
