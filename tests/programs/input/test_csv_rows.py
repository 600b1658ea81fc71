"""CSV files through Spark: exact values, or an error that names the place."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from spark_cas.core.errors import UnreadableInputError, error_from_text
from spark_cas.programs.input.csv_rows import csv_rows
from spark_cas.programs.input.parts import FILE, POSITION
from spark_cas.programs.input.text_files import whole_file_settings

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class File:
    path: str
    size: int


@pytest.fixture
def write(spark, tmp_path):
    """Writes a file, and returns it as a listing has it."""

    def write(name, data):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return File(spark._jvm.org.apache.hadoop.fs.Path(f"file:{path}").toUri().toString(), len(data))

    return write


@contextmanager
def settings(spark, values):
    """Settings of the session for a while."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rows(spark, files, schema=None, **options):
    """The values of all rows, in the order of the files."""
    frame = csv_rows(spark, files, schema, options)
    with settings(spark, whole_file_settings(files, 2)):
        found = frame.orderBy(FILE, POSITION).collect()
    assert [row[POSITION] for row in found if row[FILE] == 0] == sorted({r[POSITION] for r in found if r[FILE] == 0})
    return [tuple(row)[:-2] for row in found]


def rejected(spark, files, schema=None, **options):
    """The error that ends the load."""
    with pytest.raises(Exception) as raised:
        rows(spark, files, schema, **options)
    found = raised.value if isinstance(raised.value, UnreadableInputError) else error_from_text(str(raised.value))
    assert isinstance(found, UnreadableInputError), raised.value
    return found.message


def test_values_keep_their_bytes(spark, write):
    file = write("a.csv", b'\xef\xbb\xbfid,n\r\n"",\n,""\n"x\r\ny","p\rq"\r1,\x00\r\n\r\n"a""b", c \n\xef\xbb\xbf,2')
    assert rows(spark, [file]) == [
        ("", None),
        (None, ""),
        ("x\r\ny", "p\rq"),
        ("1", "\0"),
        ('a"b', " c "),
        ("\ufeff", "2"),
    ]


@pytest.mark.parametrize("name", ["e[1].csv", "b%20c.csv", "a b+ü.csv", "e{1}.csv", "s*r?.csv", "b\\s.csv", "h#.csv"])
def test_name_is_taken_literally(spark, write, name):
    write("e1.csv", b"id\nother\n")
    assert rows(spark, [write(name, b"id\n1\n")]) == [("1",)]
