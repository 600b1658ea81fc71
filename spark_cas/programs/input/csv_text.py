"""Dialects of CSV, and a vectorized search for the records and quotes in a block."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pc

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.exact_values import TIME_OPTIONS, ReadOptions, ValueFormats
from spark_cas.programs.input.parts import UTF_8, encoding_name, keeps_line_ends

_DEFAULT_QUOTE = '"'
_NAMES = (
    "sep",
    "quote",
    "escape",
    "header",
    "encoding",
    "comment",
    "nullValue",
    "multiLine",
    "enforceSchema",
    "mode",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
    "locale",
    *TIME_OPTIONS,
)
_CONTROL_CHARACTERS = {r"\t": "\t", r"\b": "\b", r"\f": "\f", r"\0": "\0", "\\\\": "\\"}
_LF, _CR, _SPACE = 10, 13, 32
Positions = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """Rules that split the text of CSV files into records and values."""

    separator: str = ","
    quote: str = _DEFAULT_QUOTE
    """Quote character; empty if no value is quoted."""
    escape: str = ""
    """Escape character before a quote in a quoted value. If empty or the quote itself, quotes are doubled."""
    comment: str = ""
    """First character of a comment line; empty if there are no comments."""
    encoding: str = UTF_8
    null: str = ""
    """Text of an absent value. An unquoted empty value is absent too."""
    header: bool = True
    multi_line: bool = True
    """Whether a quoted value may have line breaks. If so, the file cannot be split."""
    by_place: bool = False
    """Whether columns are matched by position and the header is ignored."""
    strip_leading: bool = False
    strip_trailing: bool = False

    @property
    def escapes(self) -> bool:
        """Whether quotes are escaped with a character other than the quote."""
        return bool(self.quote) and bool(self.escape) and self.escape != self.quote


def parse_csv_options(options: Mapping[str, str]) -> tuple[CsvDialect, ValueFormats]:
    """Return the dialect and the value formats of Spark's read options for CSV. Raises UsageError for any other."""
    read = ReadOptions(options, _NAMES)
    read.require_fail_fast()
    encoding = encoding_name(read.text("encoding", UTF_8))
    multi_line = read.flag("multiLine", default=True)
    if not multi_line and not keeps_line_ends(encoding):
        raise UsageError(
            f"read option multiLine: false cannot split files with the encoding {encoding}; expected true."
        )
    dialect = CsvDialect(
        separator=_character(read, "sep", ","),
        quote=_character(read, "quote", _DEFAULT_QUOTE, may_be_empty=True),
        escape=_character(read, "escape", "", may_be_empty=True),
        comment=_character(read, "comment", "", may_be_empty=True),
        encoding=encoding,
        null=read.text("nullValue", ""),
        header=read.flag("header", default=True),
        multi_line=multi_line,
        by_place=read.flag("enforceSchema", default=False),
        strip_leading=read.flag("ignoreLeadingWhiteSpace", default=False),
        strip_trailing=read.flag("ignoreTrailingWhiteSpace", default=False),
    )
    _require_different(dialect)
    return dialect, read.value_formats()


def _character(read: ReadOptions, name: str, default: str, *, may_be_empty: bool = False) -> str:
    value = read.text(name, default)
    value = _CONTROL_CHARACTERS.get(value, value)
    if may_be_empty and value in ("", "\0"):
        return ""
    if len(value) != 1 or not value.isascii() or value in "\r\n":
        raise UsageError(f"read option {name}: expected one ASCII character that is no line break, not {value!r}.")
    return value


def _require_different(dialect: CsvDialect) -> None:
    escape = dialect.escape if dialect.escapes else ""
    special = [each for each in (dialect.separator, dialect.quote, dialect.comment, escape) if each]
    if len(set(special)) != len(special):
        raise UsageError("read options sep, quote, escape and comment: expected different characters.")


class CsvText:
    """A block of CSV that begins with a record."""

    def __init__(self, data: bytes, dialect: CsvDialect, *, escaped: bool = True) -> None:
        """If `escaped` is false, quotes in values are doubled even if the dialect has an escape."""
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        self._dialect = dialect
        self._escaped = escaped and dialect.escapes
        self.quotes, self._escaped_quotes = self._find_quotes()
        """Positions of opening and closing quotes, alternately. A doubled quote closes and opens."""
        self.line_ends = self._find_line_ends()
        """Position of the last byte of each line end, including those in quotes."""
        self.outside = self._is_outside(self.line_ends)
        """Whether each line end is outside of quotes."""

    def head(self, size: int) -> "CsvText":
        """Return the first ``size`` bytes as a block."""
        return self if size == len(self.data) else CsvText(self.data[:size], self._dialect, escaped=self._escaped)

    def last_record_end(self) -> int:
        """Return the size of the complete records in bytes; 0 if there is none."""
        ends = self.line_ends[self.outside]
        if len(ends) and ends[-1] == len(self.data) - 1 and self.data.endswith(b"\r"):
            ends = ends[:-1]  # a line feed may follow
        return int(ends[-1]) + 1 if len(ends) else 0

    def records(self) -> tuple[Positions, Positions]:
        """Return the start of each record and of its line end. Empty records are omitted."""
        ends = self.line_ends[self.outside]
        starts = np.concatenate([[0], ends + 1])
        if starts[-1] < len(self.data):
            ends = np.append(ends, len(self.data))
        else:
            starts = starts[:-1]
        before = self.bytes[ends - 1] if len(self.bytes) else self.bytes
        is_pair = (ends > starts) & (before == _CR) & self._is_line_feed(ends)
        ends = ends - is_pair
        kept = ends > starts
        return starts[kept], ends[kept]

    def line_at(self, offset: int) -> int:
        """Return the line number of a byte, counted from 1."""
        return 1 + int(np.searchsorted(self.line_ends, offset))

    def wrong_quote(self) -> int | None:
        """Return the first quote that neither starts nor ends a value and is not doubled; None if there is none."""
        opening, closing = self.quotes[0::2], self.quotes[1::2]
        padded = np.concatenate([[_LF], self.bytes, [_LF]])  # byte n is at n + 1
        wrong_opening = opening[~self._delimits(padded[opening])]
        wrong_closing = closing[~self._delimits(padded[closing + 2])]
        wrong = [int(each[0]) for each in (wrong_opening, wrong_closing) if len(each)]
        return min(wrong, default=None)

    def wrong_escape(self) -> int | None:
        """Return the first escaped quote outside of a quoted value; None if there is none."""
        wrong = self._escaped_quotes[self._is_outside(self._escaped_quotes)]
        return int(wrong[0]) if len(wrong) else None

    def with_doubled_quotes(self) -> bytes:
        """Return the text with doubled quotes instead of escapes.

        In a quoted value an escape before a quote or before another escape is removed, and any other is kept.
        """
        escapes = np.flatnonzero(self.bytes == ord(self._dialect.escape))
        escapes = escapes[~self._is_outside(escapes)]
        if not len(escapes):
            return self.data
        result = self.bytes.copy()
        result[self._escaped_quotes - 1] = ord(self._dialect.quote)
        kept = np.ones(len(result), np.bool_)
        kept[escapes[_number_in_run(escapes) % 2 == 1]] = False
        return result[kept].tobytes()

    def stripped(self) -> bytes:
        """Return the text without the spaces around values, if the dialect ignores them."""
        separator = ord(self._dialect.separator)
        space = (self.bytes <= _SPACE) & ~np.isin(self.bytes, [_LF, _CR, separator])
        space &= self._is_outside(np.arange(len(self.bytes)))
        edges = np.diff(np.concatenate([[False], space, [False]]).astype(np.int8))
        first, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        padded = np.concatenate([[_LF], self.bytes, [_LF]])
        ends_value = [_LF, _CR, separator]
        leading = np.isin(padded[first], ends_value) & self._dialect.strip_leading
        trailing = np.isin(padded[end + 1], ends_value) & self._dialect.strip_trailing
        drop = leading | trailing
        removed = np.zeros(len(self.bytes) + 1, np.int8)
        removed[first[drop]] = 1
        removed[end[drop]] = -1
        kept: Flags = np.cumsum(removed)[:-1] == 0
        return self.bytes[kept].tobytes()

    def _find_quotes(self) -> tuple[Positions, Positions]:
        none = np.empty(0, np.intp)
        if not self._dialect.quote:
            return none, none
        quotes = np.flatnonzero(self.bytes == ord(self._dialect.quote))
        if not self._escaped or not len(quotes):
            return quotes, none
        escapes = np.flatnonzero(self.bytes == ord(self._dialect.escape))
        follows_escape = np.zeros(len(self.bytes) + 1, np.bool_)
        follows_escape[escapes[_number_in_run(escapes) % 2 == 0] + 1] = True
        is_escaped = follows_escape[quotes]
        return quotes[~is_escaped], quotes[is_escaped]

    def _find_line_ends(self) -> Positions:
        ends = np.flatnonzero(self.bytes == _LF)
        if b"\r" not in self.data:
            return ends
        returns = np.flatnonzero(self.bytes == _CR)
        alone = returns[~self._is_line_feed(returns + 1)]
        return np.sort(np.concatenate([ends, alone])) if len(alone) else ends

    def _is_line_feed(self, positions: Positions) -> Flags:
        inside = positions < len(self.bytes)
        result = np.zeros(len(positions), np.bool_)
        result[inside] = self.bytes[positions[inside]] == _LF
        return result

    def _is_outside(self, positions: Positions) -> Flags:
        if not len(self.quotes):
            return np.ones(len(positions), np.bool_)
        outside: Flags = np.searchsorted(self.quotes, positions) % 2 == 0
        return outside

    def _delimits(self, values: npt.NDArray[np.uint8]) -> Flags:
        return np.isin(values, [_LF, _CR, ord(self._dialect.separator), ord(self._dialect.quote)])


def _number_in_run(positions: Positions) -> Positions:
    """Return the number of each position in its run of adjacent ones, counted from 0."""
    is_new = np.concatenate([[True], np.diff(positions) != 1])[: len(positions)]
    numbers = np.arange(len(positions))
    in_run: Positions = numbers - np.maximum.accumulate(np.where(is_new, numbers, 0))
    return in_run


def record_values(record: bytes, dialect: CsvDialect) -> list[str]:
    """Return the values of a record with doubled quotes. An absent value is an empty text."""
    names = pc.read_csv(  # read as a header, so that no type is inferred
        pa.BufferReader(b"\n" + record + b"\n"),
        read_options=pc.ReadOptions(use_threads=False, block_size=len(record) + 3),
        parse_options=pc.ParseOptions(
            delimiter=dialect.separator, quote_char=dialect.quote or False, newlines_in_values=True
        ),
    ).column_names
    return [str(name) for name in names]
