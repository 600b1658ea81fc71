"""Dates and times with a Java pattern: exact, or rejected with file and line."""

import datetime as dt

import pytest

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.csv_rows import csv_rows
from spark_cas.programs.input.exact_values import require_exact_pattern
from spark_cas.programs.input.json_rows import json_rows
from spark_cas.programs.input.parts import FILE, POSITION
from tests.programs.input.reading import message_of, rows_of, write_file

pytestmark = pytest.mark.spark
BERLIN = {"timestampFormat": "dd.MM.yyyy HH:mm", "timeZone": "Europe/Berlin"}
LONDON = {"timestampFormat": "d.M.yyyy H:mm[:ss.SSS][XXX]", "timeZone": "Europe/London"}


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("timestampFormat", "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"),
        ("timestampNTZFormat", "yyyy-MM-dd HH:mm:ss.SSSSSSS"),
        ("timestampFormat", "MM/dd/yyyy hh:mm"),
        ("timestampFormat", "MM/dd/yyyy KK:mm 'a'"),
        ("timestampFormat", "MM/dd/yyyy hh:mm[ a]"),
        ("timestampFormat", "dd.MM.yyyy HH:mm z"),
        ("timestampFormat", "dd.MM.yyyy HH:mm v"),
        ("timestampFormat", "dd.MM.yyyy HH:mm VV"),
        ("timestampFormat", "HH:mm"),
        ("timestampFormat", "'yyyy-MM-dd' HH:mm"),
        ("timestampFormat", "[yyyy-MM-dd ]HH:mm"),
        ("timestampNTZFormat", "dd.MM. HH:mm"),
        ("timestampNTZFormat", "yyyy-MM-dd HH:mmXXX"),
        ("dateFormat", "yyyy-MM-dd HH:mm:ss"),
        ("dateFormat", "yyyy-MM-ddXXX"),
        ("dateFormat", "yyyy-MM"),
        ("dateFormat", "dd.MM.yy"),
        ("timestampFormat", "dd.MM.uu HH:mm"),
    ],
)
def test_pattern_that_loses_a_part_of_a_value_is_rejected(spark, option, pattern):
    for read in (csv_rows, json_rows):
        with pytest.raises(UsageError, match=option):
            read(spark, [], "d DATE", {option: pattern})


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX"),
        ("timestampFormat", "MM/dd/yyyy hh:mm a"),
        ("timestampFormat", "yyyyDDD HHmm"),
        ("dateFormat", "d. MMMM yyyy 'Zahltag'"),
    ],
)
def test_exact_pattern_is_accepted(option, pattern):
    require_exact_pattern(option, pattern)


@pytest.fixture(params=["csv", "json"])
def times(request, spark, tmp_path):
    """A function that reads texts as timestamps."""

    def times(*texts, **options):
        if request.param == "csv":
            data = "\n".join(["id,t", *(f"1,{text}" for text in texts)])
            file = write_file(tmp_path / "a.csv", data.encode())
            found = rows_of(spark, [file], lambda: csv_rows(spark, [file], "id INT, t TIMESTAMP", options))
            return [t for _, t in found]
        lines = ['{"id":0}', *(f'{{"id":1,"s":{{"m":{{"k":[null,"{text}"]}}}}}}' for text in texts)]
        file = write_file(tmp_path / "a.jsonl", "\n".join(lines).encode())
        schema = "id INT, s STRUCT<m: MAP<STRING, ARRAY<TIMESTAMP>>>"
        frame = lambda: json_rows(spark, [file], schema, options).select("s.m.k", FILE, POSITION)  # noqa: E731
        return [k[1] for (k,) in rows_of(spark, [file], frame)[1:]]

    return times


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            BERLIN,
            {
                "31.03.2024 01:59": "2024-03-31T00:59:00+00:00",
                "31.03.2024 03:00": "2024-03-31T01:00:00+00:00",
                "27.10.2024 03:00": "2024-10-27T02:00:00+00:00",
                "01.07.2040 12:00": "2040-07-01T10:00:00+00:00",
            },
        ),
        (
            LONDON,
            {
                "1.7.2024 9:30:00.5": "2024-07-01T08:30:00.500000+00:00",
                "27.10.2024 1:30+01:00": "2024-10-27T00:30:00+00:00",
                "27.10.2024 1:30Z": "2024-10-27T01:30:00+00:00",
                "31.3.2024 1:30Z": "2024-03-31T01:30:00+00:00",
            },
        ),
    ],
)
def test_local_time_that_exists_once_is_kept(times, options, expected):
    instants = [dt.datetime.fromisoformat(each).timestamp() for each in expected.values()]
    assert [each.timestamp() for each in times(*expected, **options)] == instants


def test_wrong_time_is_rejected_if_no_expression_uses_its_column(spark, tmp_path):
    file = write_file(tmp_path / "a.jsonl", b'{"id":1,"d":["30.02.2024"]}')
    schema, options = "id INT, d ARRAY<DATE>", {"dateFormat": "dd.MM.yyyy"}
    frame = lambda: json_rows(spark, [file], schema, options).select("id", FILE, POSITION)  # noqa: E731
    assert "30.02.2024" in message_of(lambda: rows_of(spark, [file], frame))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("25.03.2040 02:30", BERLIN),
        ("27.10.2024 02:59", BERLIN),
        ("31.3.2024 1:30", LONDON),
        ("27.10.2024 1:30", LONDON),
        ("07.04.2024 01:45", {**BERLIN, "timeZone": "Australia/Lord_Howe"}),
        ("31.02.2024 12:00", BERLIN),
    ],
)
def test_local_time_that_is_skipped_or_repeated_is_rejected(times, text, options):
    message = message_of(
        lambda: times("01.01.2024 01:00" if options is not LONDON else "1.1.2024 1:00", text, **options)
    )
    assert "line 3" in message
    assert text in message
