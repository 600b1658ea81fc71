"""Text files through Spark: a line is a value."""

from dataclasses import replace

import pyarrow as pa
import pytest

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.parts import count_filled_lines, count_lines, file_key, read_parts
from spark_cas.programs.input.spark_files import text_rows
from tests.programs.input.reading import message_of, rows_of, write_file

pytestmark = pytest.mark.spark


@pytest.fixture
def rows(spark, tmp_path):
    def rows(data, **options):
        files = [write_file(tmp_path / "a.txt", data)]
        return [value for (value,) in rows_of(spark, files, lambda: text_rows(spark, files, options))]

    return rows


def test_line_keeps_its_bytes(rows):
    assert rows(b"\xef\xbb\xbfa\r\n\n \x00\rb\nlast") == ["a\r", "", " \0\rb", "last"]
    assert rows(b"a\n\n") == ["a", ""]
    assert rows(b"") == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be", "cp1252"])
def test_other_encoding_is_decoded(rows, encoding):
    for text in ("é\n\nb\n", "é\r\nb"):
        assert rows(text.encode(encoding), encoding=encoding) == text.removesuffix("\n").split("\n")


@pytest.mark.parametrize(("data", "options"), [(b"a\n\xff\n", {}), (b"a\n\x81\n", {"encoding": "cp1252"})])
def test_bytes_of_another_encoding_are_rejected(rows, data, options):
    assert "a.txt, line 2" in message_of(lambda: rows(data, **options))


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("ab\u4e00".encode("utf-16-be")[:-1], "utf-16-be"),
        ("ab".encode("utf-16-le")[:-1], "utf-16-le"),
        ("\U0001f600".encode("utf-32-be")[:-1], "utf-32-be"),
        ("ab".encode("cp500"), "cp500"),
    ],
)
def test_file_that_may_end_within_a_character_is_rejected(rows, data, encoding):
    """The line end that Spark's reader removes, and a task adds, must not complete a character."""
    assert "a.txt" in message_of(lambda: rows(data, encoding=encoding))


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_mark_of_utf8_in_another_encoding_is_rejected(rows, end):
    """Spark's reader removes these bytes in each encoding."""
    data = b"1,2\n3" + end
    assert rows(data, encoding="cp1251") == ["1,2", "3"]
    message = message_of(lambda: rows(b"\xef\xbb\xbf" + data, encoding="cp1251"))
    assert "a.txt" in message
    assert "UTF-8" in message


def test_option_that_is_not_honoured_is_rejected(rows):
    with pytest.raises(UsageError):
        rows(b"a\n", wholetext="true")


def test_file_that_has_another_size_than_listed_is_rejected(spark, tmp_path):
    file = replace(write_file(tmp_path / "a.txt", b"one\n"), size=5)
    assert "4 bytes" in message_of(lambda: rows_of(spark, [file], lambda: text_rows(spark, [file], {})))


def drops_last_line(_, pieces):
    """A defective reader that drops the last line."""
    lines = b"".join(pieces).split(b"\n")[:-1]
    yield pa.record_batch({"value": lines[:-1]})


def reads_one_piece(_, pieces):
    """A defective reader that ends before the last piece."""
    yield pa.record_batch({"value": [next(pieces)]})


@pytest.mark.parametrize("reader", [drops_last_line, reads_one_piece])
@pytest.mark.parametrize("count", [count_lines, count_filled_lines])
def test_reader_that_drops_a_line_is_detected(count, reader):
    path = "file:/a.txt"
    columns = {
        "text": [b"one\n", b"two\n"],
        "file": [file_key(path)] * 2,
        "start": [0, 0],
        "end": [8, 8],
        "size": [8, 8],
    }
    batch = pa.record_batch(columns)
    with pytest.raises(UnreadableInputError, match=r"a\.txt.*2.*1"):
        list(read_parts(iter([batch[:1], batch[1:]]), [(path, 8)], reader, count))


def test_lines_of_spaces_are_no_documents():
    assert count_filled_lines(b"{}\n\n \t\r\n {}\r\n") == 2


@pytest.mark.parametrize("now", [b"a\n", b"a\nbbbbbbbb\nc\nd\n"], ids=["shorter", "longer"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
def test_file_that_changes_after_it_was_listed_is_rejected(spark, tmp_path, mark, now):
    before = mark + b"a\nbbbbbbbb\nc\n"
    file = write_file(tmp_path / "a.txt", before)
    frame = text_rows(spark, [file], {})
    assert frame.count() == 3
    (tmp_path / "a.txt").write_bytes(mark + now)
    assert "it changed during the load" in message_of(frame.collect)
