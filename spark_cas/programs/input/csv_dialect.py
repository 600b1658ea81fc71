"""Validated read options of CSV."""

from collections.abc import Mapping
from dataclasses import dataclass

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.decoding import UTF_8, encoding_name, keeps_line_ends
from spark_cas.programs.input.read_options import TIME_OPTIONS, ReadOptions, ValueFormats

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
_OTHER_NAMES = {"delimiter": "sep", "charset": "encoding"}
_CONTROL_CHARACTERS = {r"\t": "\t", r"\b": "\b", r"\f": "\f", r"\0": "\0", "\\\\": "\\"}


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
    read = ReadOptions(options, _NAMES, _OTHER_NAMES)
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
