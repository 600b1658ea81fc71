"""Blocks of CSV against Python's own parser."""

import csv
import io
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.input.csv_rows import CsvFormat, CsvReader
from spark_cas.programs.input.csv_text import CsvDialect
from spark_cas.programs.input.exact_values import PLACE, TextColumn
from spark_cas.programs.input.parts import Part

PART = Part("file:/a/b.csv")
NO_HEADER = CsvDialect(header=False)


def text_format(dialect, columns, header=None, *, with_place=False):
    texts = tuple(TextColumn(str(number), "string", "string") for number in range(columns))
    return CsvFormat(dialect, texts, header, with_place)


def read(data, columns, dialect=NO_HEADER, *, header=None, pieces=(), block_bytes=1, part=PART):
    """Return the records of a file that arrives in pieces, which end at these offsets.

    Like Spark's lines, the last piece always ends with a line feed.
    """
    reader = CsvReader(part, text_format(dialect, columns, header), block_bytes)
    data += b"\n" if data and not data.endswith(b"\n") else b""
    bounds = [0, *sorted(max(each % (len(data) + 1), min(4, len(data))) for each in pieces), len(data)]
    blocks = reader.rows(data[first:end] for first, end in pairwise(bounds))
    return [tuple(row.values()) for block in blocks for row in block.to_pylist()]


def read_lines(data, columns, pieces, **kwargs):
    reader = CsvReader(PART, text_format(NO_HEADER, columns, with_place=True), **kwargs)
    return [int(place.rpartition(" ")[2]) for block in reader.rows(pieces) for place in block[PLACE].to_pylist()]


def rejected(data, columns=2, dialect=NO_HEADER, **kwargs):
    with pytest.raises(UnreadableInputError) as error:
        read(data, columns, dialect, **kwargs)
    return str(error.value)


PIECES = st.lists(st.integers(0, 10_000), max_size=6)
TEXT = st.text(alphabet=st.sampled_from("ab,;\t\"'\\#\r\n \x00\x0b\ufeffé€\u2028😀"), max_size=6) | st.text(
    max_size=8
)
VALUES = st.none() | TEXT


@st.composite
def files(draw):
    """Generate records and a file that contains them, with any quoting, line ends and blank lines."""
    columns = draw(st.integers(1, 5))
    records = draw(st.lists(st.tuples(*[VALUES] * columns), max_size=12))
    separator = draw(st.sampled_from([",", ";", "\t", "|", " "]))
    quote = draw(st.sampled_from(['"', "'"]))
    ends = st.sampled_from(["\n", "\r\n", "\r"])
    text = ""
    for record in records:
        fields = []
        for value in record:
            plain = value is None or (value and not set(value) & {separator, quote, "\r", "\n"})
            # A record without any character is a blank line.
            plain = plain and not (columns == 1 and value is None)
            if value is not None and (not plain or draw(st.booleans())):
                fields.append(quote + value.replace(quote, 2 * quote) + quote)
            else:
                fields.append(value or "")
        if columns == 1 and record[0] is None:
            continue
        text += separator.join(fields) + draw(ends)
        text += "".join(draw(st.lists(ends, max_size=2)))
    if text.endswith(("\r", "\n")) and draw(st.booleans()):
        text = text.rstrip("\r\n")
    kept = [record for record in records if not (columns == 1 and record[0] is None)]
    return kept, text, separator, quote


@given(
    files(), PIECES, st.integers(1, 300), st.sampled_from(["utf-8", "utf-16", "utf-16-le", "utf-32-be", "gb18030"])
)
def test_values_are_those_of_another_parser(file, pieces, block_bytes, encoding):
    records, text, separator, quote = file
    assume(not text.startswith("\ufeff"))  # at the start of a file this is a byte order mark, not a value
    data = text.encode(encoding)
    dialect = CsvDialect(separator=separator, quote=quote, header=False, encoding=encoding)
    result = read(data, len(records[0]) if records else 1, dialect, pieces=pieces, block_bytes=block_bytes)
    assert result == records
    others = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote, strict=True)
    assert [[value or "" for value in record] for record in records] == [record for record in others if record]


@given(files(), PIECES)
def test_escapes_and_comments_are_those_of_another_parser(file, pieces):
    records, _, separator, quote = file
    text = "#first 'x\n"
    for record in records:
        escaped = [(value or "").replace("\\", "\\\\").replace(quote, f"\\{quote}") for value in record]
        text += separator.join(f"{quote}{value}{quote}" for value in escaped) + f"\r\n# a {quote}\n"
    dialect = CsvDialect(separator=separator, quote=quote, escape="\\", comment="#", header=False)
    result = read(text.encode(), len(records[0]) if records else 1, dialect, pieces=pieces)
    assert result == [tuple(value or "" for value in record) for record in records]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rb'"x\\y",1', "x\\y"),
        (rb'"x\\",1', "x\\"),
        (rb'"x\\\"y",1', 'x\\"y'),
        (rb'"x\ny",1', "x\\ny"),
        (rb'"x\"y",1', 'x"y'),
        (rb"x\\y,1", "x\\\\y"),
    ],
)
def test_escape_is_that_of_spark(data, expected):
    assert read(data, 2, CsvDialect(escape="\\", header=False)) == [(expected, "1")]


@pytest.mark.parametrize(
    ("leading", "trailing", "expected"),
    [
        (True, True, [("a", " b ", None), ("c", "d", "e")]),
        (True, False, [("a ", " b ", None), ("c", "d", "e \t")]),
        (False, True, [(" a", " b ", None), ("c", "d", "e")]),
    ],
)
def test_spaces_around_values_are_stripped(leading, trailing, expected):
    dialect = CsvDialect(strip_leading=leading, strip_trailing=trailing, header=False)
    data = b' a ," b ", \r\n  \r\nc,"d",e \t\n'
    if leading and trailing:
        data = data.replace(b'," b "', b', " b " ')
    assert read(data.replace(b"\r\n  ", b"") if not (leading or trailing) else data, 3, dialect) == expected


def test_empty_is_not_absent():
    assert read(b'"",\n,""\n', 2) == [("", None), (None, "")]


def test_null_value_is_unquoted():
    assert read(b'NA,"NA"\n,x\n', 2, CsvDialect(null="NA", header=False)) == [(None, "NA"), (None, "x")]


def test_mark_of_utf8_in_a_value_is_kept():
    assert read("a,b\n\ufeffc,d\n".encode(), 2, pieces=[4]) == [("a", "b"), ("\ufeffc", "d")]


@pytest.mark.parametrize(
    ("data", "encoding", "expected"),
    [
        ("\ufeffa".encode("utf-16"), "utf-16", "\ufeffa"),
        ("\ufeffa".encode("utf-16-le"), "utf-16-le", "a"),
        ("\ufeff\ufeffa".encode("utf-16-be"), "utf-16-be", "\ufeffa"),
    ],
)
def test_mark_at_the_start_of_a_file_is_removed_once(data, encoding, expected):
    assert read(data, 1, CsvDialect(encoding=encoding, header=False)) == [(expected,)]


def test_absent_value_after_an_empty_one_ends_a_file():
    assert read('"",'.encode("utf-16-le"), 2, CsvDialect(encoding="utf-16-le", header=False)) == [("", None)]


def test_quotes_are_text_without_a_quote_character():
    assert read(b'a"b,"c\n', 2, CsvDialect(quote="", header=False)) == [('a"b', '"c')]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'a,"1\nb,2\nc,3\n', 1),
        (b'x,y\na,b"c\n', 2),
        (b'x,y\na,b"c"\n', 2),
        (b'x,y\na,"b" \n', 2),
        (b'x,y\na, "b"\n', 2),
        (b'x,y\n"a"b,c\n', 2),
        (b'x,y\n"a""b"c,d\n', 2),
        (b'"x\n\r\r\n",y\na,b,c\n', 5),
        (b"x,y\n\na\n", 3),
        (b"x,y\na,\xff\n", 2),
        (b"x,y\na,\xc3", 2),
    ],
)
def test_bad_record_is_rejected_with_its_line(data, line):
    assert f"b.csv, line {line}: " in rejected(data)
    assert f"b.csv, line {line}: " in rejected(data, block_bytes=1000)
    assert f"b.csv, line {line}: " in rejected(data, pieces=range(4, len(data)))


def test_line_break_needs_multi_line():
    dialect = CsvDialect(multi_line=False, header=False)
    assert read(b'"a\rb",c\n', 2, dialect) == [("a\rb", "c")]
    assert "multiLine=true" in rejected(b'x,y\n"a\nb",c\n', 2, dialect)


def test_part_of_a_file_is_read_only_if_records_have_no_line_breaks():
    with pytest.raises(UnreadableInputError):
        CsvReader(Part("file:/a/b.csv", 0, 100), text_format(CsvDialect(), 1))
    assert read(b"1\n2\n", 1, CsvDialect(multi_line=False), part=Part("file:/b", 0, 100)) == [("1",), ("2",)]


@pytest.mark.parametrize("header", [("a", "B"), ("a", "b", "c"), ("b", "a")])
def test_other_header_is_rejected(header):
    dialect = CsvDialect()
    assert read(b"\r\na,b\n1,2\n", 2, dialect, header=("a", "b")) == [("1", "2")]
    with pytest.raises(UnreadableInputError):
        read(b"a,b\n1,2\n", 2, dialect, header=header)


@pytest.mark.parametrize("magic", [b"PAR1\x15\x04", b"ORC\x0a\x01", b"Obj\x01", b"\x1f\x8b\x08", b"PK\x03\x04"])
def test_file_of_another_format_is_rejected(magic):
    rejected(magic + b"\x00\x15,\n")


def test_names_that_begin_as_a_format_are_read():
    assert read(b"ORCID,PAR1\n", 2) == [("ORCID", "PAR1")]


@pytest.mark.parametrize(
    ("data", "line"),
    [(b'"a\nb",1\nc,2\n\n\rd,3\n', [1, 3, 6]), (b"\n\na,1\n", [3])],
)
def test_lines_of_records_are_those_of_the_file(data, line):
    assert read_lines(data, 2, [data]) == line
    assert read_lines(data.replace(b"\n", b"\r\n"), 2, [data.replace(b"\n", b"\r\n")], block_bytes=1) == line
    assert read_lines(data, 2, [bytes([each]) for each in data.replace(b"\n", b"\r\n")], block_bytes=1) == line


def test_encoding_is_strict():
    dialect = CsvDialect(encoding="cp1252", header=False)
    assert read(b"\x80,\xe9\n", 2, dialect) == [("€", "é")]
    assert "line 2" in rejected(b"a,b\n\x81,c\n", 2, dialect)
