r"""Split CSV into blocks of complete records, check quoting strictly (RFC 4180), and parse the blocks.

A line ends with `\n`, `\r\n` or a single `\r`. A line end outside of quotes ends the record. Empty records are
skipped. Values keep each byte, including line ends and NUL in quotes. An unquoted empty value is absent (null); `""`
is an empty text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pc

from spark_cas.programs.input.csv_dialect import CsvDialect
from spark_cas.programs.input.csv_text import CsvText, Positions, record_values
from spark_cas.programs.input.decoding import Decoder, require_utf8, require_whole_file
from spark_cas.programs.input.parts import Part, require_text, shown

_BLOCK_BYTES = 512 * 1024
_LINE_FEED = 10
_BOM = b"\xef\xbb\xbf"

READ_WHOLE = "Remove the lines before it, or give --read-option multiLine=true, which reads the file in one task"
_QUOTING = (
    "Quote the whole value and double each quote in it, or give the read option escape, or quote= for no quotes"
)


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """Records of a part: their values as text, and their first lines."""

    records: pa.Table
    """A text column per value. The names are the numbers of the columns."""
    _text: CsvText
    _starts: Positions
    _lines_before: int

    def line(self, record: int) -> int:
        """Return the line of the part at which a record begins, counted from 1."""
        return self._lines_before + self._text.line_at(int(self._starts[record]))


class CsvBlocks:
    """Incremental reader of one part."""

    def __init__(
        self,
        part: Part,
        dialect: CsvDialect,
        columns: int,
        header: Sequence[str] | None = None,
        block_bytes: int = _BLOCK_BYTES,
    ) -> None:
        """Create a reader.

        ``columns`` is the expected number of columns. ``header`` is the expected header at the start of the file;
        None accepts any header.
        """
        require_whole_file(part, whole=dialect.multi_line)
        self._part = part
        self._dialect = dialect
        self._columns = columns
        self._expected_header = header
        self._header_is_next = dialect.header and part.start == 0
        self._decoder = Decoder(part, dialect.encoding)
        self._block_bytes = block_bytes
        self._enough = block_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._first = b""
        self._lines = 0
        names = [str(number) for number in range(columns)]
        self._parse = pc.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            invalid_row_handler=self._reject_row,
        )
        self._parse_line_breaks = pc.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            newlines_in_values=True,
            invalid_row_handler=self._reject_row,
        )
        self._convert = pc.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list({"", dialect.null}),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # the whole block is checked
        )
        self._names = names
        self._bad_record: tuple[int, int] | None = None

    def feed(self, data: bytes) -> Iterator[CsvBlock]:
        """Add the next bytes of the part and yield complete blocks."""
        if self._part.start == 0 and not self._first:
            self._first = data
            require_text(self._part, data, "CSV")
        self._add(self._decoder.feed(data))
        if self._size >= self._enough:
            yield from self._block(final=False)

    def finish(self) -> Iterator[CsvBlock]:
        """Yield the remaining records at the end of the part."""
        self._add(self._decoder.feed(b"", final=True))
        yield from self._block(final=True)
        if self._header_is_next and not self._part.is_last:
            # The reader of the next part cannot detect that the part begins with the header.
            raise self._part.error("Spark split the file before its header", READ_WHOLE)

    def first_record(self, data: bytes, *, is_whole: bool) -> list[str] | None:
        """Return the values of the first record of a file; None if ``data`` does not contain all of it."""
        require_text(self._part, data, "CSV")
        decoded = self._decoder.feed(data) + (self._decoder.feed(b"", final=True) if is_whole else b"")
        text = CsvText(self._without_comments(decoded, final=is_whole), self._dialect)
        text = self._plain(text.head(len(text.data) if is_whole else text.last_record_end()))
        starts, ends = text.records()
        if not len(starts):
            return None
        text = text.head(int(ends[0]))
        require_utf8(self._part, text.data, text.line_at)
        self._check_quotes(text)
        return record_values(text.data[starts[0] :], self._dialect)

    def _add(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)

    def _block(self, *, final: bool) -> Iterator[CsvBlock]:
        data = self._without_comments(b"".join(self._pieces), final=final)
        text = CsvText(data, self._dialect)
        cut = len(data) if final else text.last_record_end()
        self._pieces = [data[cut:]]
        self._size = len(data) - cut
        # Search a record that exceeds a block again only after its size has doubled.
        self._enough = max(self._block_bytes, 2 * self._size)
        if cut:
            yield from self._records(text.head(cut))

    def _records(self, raw: CsvText) -> Iterator[CsvBlock]:
        require_utf8(self._part, raw.data, lambda offset: self._lines + raw.line_at(offset))
        self._check_line_breaks(raw)
        text = self._plain(raw)
        self._check_quotes(text)
        starts, ends = text.records()
        if self._header_is_next and len(starts):
            self._header_is_next = False
            self._check_header(text.data[starts[0] : ends[0]], self._lines + text.line_at(starts[0]))
            self._lines += text.line_at(ends[0]) - 1
            text = CsvText(text.data[ends[0] :], self._dialect, escaped=False)
            starts, ends = text.records()
        if len(starts):
            yield CsvBlock(self._parsed(text, starts), text, starts, self._lines)
        self._lines += len(text.line_ends)

    def _parsed(self, text: CsvText, starts: Positions) -> pa.Table:
        # Add an empty line, which the parser skips. Otherwise it would remove a byte order mark here.
        data = b"\n" + text.data if text.data.startswith(_BOM) else text.data
        # If the last value is absent, the one before is quoted, and no line end follows, pyarrow 26 reads it as
        # quoted.
        data = data if data.endswith((b"\n", b"\r")) else data + b"\n"
        options = pc.ReadOptions(use_threads=False, column_names=self._names, block_size=len(data) + 1)
        parse = self._parse_line_breaks if text.has_line_breaks() else self._parse
        try:
            table = pc.read_csv(
                pa.BufferReader(data), read_options=options, parse_options=parse, convert_options=self._convert
            )
        except pa.ArrowInvalid:
            if self._bad_record is None:
                raise
            record, columns = self._bad_record
            raise self._part.error(
                f"expected {self._columns} columns, found {columns}",
                "Check the file, and the read options sep and quote",
                line=self._lines + text.line_at(int(starts[record])),
            ) from None
        if table.num_rows != len(starts):
            raise self._part.error(
                f"{len(starts)} records were counted, and {table.num_rows} parsed",
                "This is a defect of spark_cas: report it, with the file if possible",
                line=self._lines + 1,
            )
        return table

    def _reject_row(self, row: pc.InvalidRow) -> str:
        self._bad_record = row.number - 1, row.actual_columns
        return "error"

    def _check_header(self, record: bytes, line: int) -> None:
        if self._expected_header is None:
            return
        header = record_values(record, self._dialect)
        if header != list(self._expected_header):
            raise self._part.error(
                header_difference(header, self._expected_header),
                "Load files with different headers one by one, or give --read-option enforceSchema=true to take "
                "columns by their place",
                line=line,
            )

    def _check_line_breaks(self, text: CsvText) -> None:
        if self._dialect.multi_line:
            return
        inside = text.line_ends[~text.outside]
        inside = inside[text.bytes[inside] == _LINE_FEED]
        if len(inside):
            raise self._part.error(
                "a quoted value has a line break, or a quote is not closed",
                "Give --read-option multiLine=true, or close the quote",
                line=self._lines + text.line_at(int(inside[0])),
            )

    def _check_quotes(self, text: CsvText) -> None:
        if not len(text.quotes):
            return
        wrong = text.wrong_quote()
        if wrong is not None:
            raise self._part.error(
                "a quote is inside of an unquoted value, or text follows a closing quote",
                _QUOTING,
                line=self._lines + text.line_at(wrong),
            )
        if len(text.quotes) % 2:
            raise self._part.error(
                "a quote is not closed",
                _QUOTING,
                line=self._lines + text.line_at(int(text.quotes[-1])),
            )

    def _without_comments(self, data: bytes, *, final: bool) -> bytes:
        """Replace comment lines with empty lines, which are skipped."""
        comment = self._dialect.comment.encode()
        if not comment or not any(data.startswith(comment) or end + comment in data for end in (b"\n", b"\r")):
            return data
        kept = []
        inside = False
        for line in data.splitlines(keepends=True):
            is_whole = final or line.endswith((b"\n", b"\r"))
            if not inside and is_whole and line.startswith(comment):
                kept.append(line[len(line.rstrip(b"\r\n")) :])
                continue
            kept.append(line)
            inside ^= bool(len(CsvText(line, self._dialect).quotes) % 2)
        return b"".join(kept)

    def _plain(self, text: CsvText) -> CsvText:
        """Convert escapes and spaces to the form of RFC 4180."""
        if self._dialect.escapes and self._dialect.escape.encode() in text.data:
            wrong = text.wrong_escape()
            if wrong is not None:
                raise self._part.error(
                    "an escaped quote is outside of a quoted value",
                    _QUOTING,
                    line=self._lines + text.line_at(wrong),
                )
            text = CsvText(text.with_doubled_quotes(), self._dialect, escaped=False)
        if self._dialect.strip_leading or self._dialect.strip_trailing:
            text = CsvText(text.stripped(), self._dialect, escaped=False)
        return text


def header_difference(header: Sequence[str], expected: Sequence[str]) -> str:
    """Describe the first difference between two headers."""
    if len(header) != len(expected):
        return f"expected {len(expected)} columns, the header has {len(header)}"
    column, (actual, name) = next(
        (column, pair) for column, pair in enumerate(zip(header, expected, strict=True), 1) if pair[0] != pair[1]
    )
    return f"column {column} of the header: expected {shown(name)}, found {shown(actual)}"


def first_record(part: Part, dialect: CsvDialect, data: bytes, *, is_whole: bool) -> list[str] | None:
    """Return the values of the first record; None if ``data`` does not contain all of it."""
    return CsvBlocks(part, dialect, 0).first_record(data, is_whole=is_whole)
