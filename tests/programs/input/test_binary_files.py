"""Whole files as rows."""

from dataclasses import replace

import pytest

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import list_input
from spark_cas.programs.input.parts import FILE, POSITION
from spark_cas.programs.input.spark_files import binary_rows

pytestmark = pytest.mark.spark

NAMES = ["a.bin", "b%20c", "d e+ü.gz", "e[1].x", "f{1}", "s*r?", "b\\s", "h#", "empty", "x=1"]


def content(name):
    return b"" if name == "empty" else name.encode() + b"\r\n\0\xff" * 1000


@pytest.fixture
def files(spark, tmp_path):
    (tmp_path / "e1.x").write_bytes(b"other")  # a match of the pattern e[1].x
    for name in NAMES:
        (tmp_path / name).write_bytes(content(name))
    return list_input([str(tmp_path / name) for name in NAMES], spark).files


def test_each_file_is_one_row(spark, files):
    frame = binary_rows(spark, files)
    assert frame.columns == ["value", "path", "length", "modificationTime", FILE, POSITION]
    modified = frame.selectExpr("*", "unix_millis(modificationTime) AS modified_ms").orderBy(FILE).collect()
    assert len(modified) == len(files)
    for index, (row, file) in enumerate(zip(modified, files, strict=True)):
        expected = content(file.path.rpartition("/")[2])
        assert (bytes(row.value), row.path, row.length) == (expected, file.path, len(expected))
        assert (row[FILE], row[POSITION], row.modified_ms) == (index, 0, file.modified_ms)


@pytest.mark.parametrize("name", ["empty", "a.bin"])
def test_other_size_than_listed_is_rejected(spark, files, name):
    changed = [replace(each, size=each.size + 1) if each.path.endswith(f"/{name}") else each for each in files]
    with pytest.raises(UnreadableInputError, match=f"/{name}"):
        binary_rows(spark, changed)


def test_file_that_changes_during_the_load_is_rejected(spark, files, tmp_path):
    frame = binary_rows(spark, files)
    (tmp_path / "a.bin").write_bytes(b"other")
    with pytest.raises(Exception, match=r"INPUT_UNREADABLE.*/a\.bin"):
        frame.collect()


def test_file_above_the_limit_is_rejected_on_the_driver(spark, files):
    large = replace(files[0], size=2**31)
    with pytest.raises(UnreadableInputError) as raised:
        binary_rows(spark, [*files[1:], large])
    assert large.path in raised.value.message


def test_input_that_spark_skips_is_rejected(spark):
    for files in ([], [InputFile("file:/data/_a", 1, 0)], [InputFile("file:/data/.a", 1, 0)]):
        with pytest.raises(UsageError):
            binary_rows(spark, files)
