"""Blocks of CSV against Python's own parser."""

import csv
import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.input.csv_blocks import CsvBlocks
from spark_cas.programs.input.csv_dialect import CsvDialect
from spark_cas.programs.input.parts import Part

PART = Part("file:/a/b.csv")
NO_HEADER = CsvDialect(header=False)


def read(data, columns, dialect=NO_HEADER, *, header=None, pieces=(), block_bytes=1, part=PART):
    """The records of a file that arrives in pieces, which end at these offsets.

    As Spark's lines do, the last piece ends with a line feed in any case.
    """
    reader = CsvBlocks(part, dialect, columns, header, block_bytes)
    blocks: list = []
    data += b"\n" if data and not data.endswith(b"\n") else b""
    bounds = [0, *sorted(max(each % (len(data) + 1), min(4, len(data))) for each in pieces), len(data)]
    for first, end in pairwise(bounds):
        blocks += reader.feed(data[first:end])
    blocks += reader.finish()
    return [tuple(row.values()) for block in blocks for row in block.records.to_pylist()]


def read_lines(data, columns, dialect=NO_HEADER, **kwargs):
    reader = CsvBlocks(PART, dialect, columns, None, **kwargs)
    blocks = [*reader.feed(data), *reader.finish()]
    return [block.line(record) for block in blocks for record in range(block.records.num_rows)]


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
    """Records, and a file that has them: any quoting, line ends and blank lines."""
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
    data = text.encode(encoding)
    dialect = CsvDialect(separator=separator, quote=quote, header=False, encoding=encoding)
    result = read(data, len(records[0]) if records else 1, dialect, pieces=pieces, block_bytes=block_bytes)
    assert result == records
    others = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote, strict=True)
    assert [[value or "" for value in record] for record in records] == [record for record in others if record]
