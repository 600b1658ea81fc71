"""Strict decoding of files to UTF-8."""

import codecs
from collections.abc import Callable

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.parts import Part

UTF_8 = "utf-8"
_BOM = codecs.BOM_UTF8.decode(UTF_8)
_NEEDS_BOM = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
_FIX = "Convert the file, or give its encoding as --read-option encoding=NAME"
_LINE_END = b"\n"
_COMPRESSED = (".gz", ".bz2", ".zst", ".deflate")


def encoding_name(name: str) -> str:
    """Return Python's name of an encoding. Raises UsageError if it is unknown."""
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except LookupError:
        raise UsageError(f"read option encoding: {name!r} is not a known encoding.") from None


def keeps_line_ends(encoding: str) -> bool:
    """Return whether byte 10 occurs only as a line end in an encoding, so that a file can be split there."""
    return encoding in (UTF_8, "ascii") or encoding.startswith(("iso8859", "cp125"))


def require_utf8(part: Part, text: bytes, line_of: Callable[[int], int]) -> None:
    """Reject bytes that are not UTF-8. `line_of` returns the line of an offset."""
    try:
        text.decode(UTF_8)
    except UnicodeDecodeError as error:
        raise _undecodable(part, UTF_8, error, line_of(error.start)) from None


class Decoder:
    """Incremental decoder of one part of a file to UTF-8. It does not check bytes that are already UTF-8."""

    def __init__(self, part: Part, encoding: str) -> None:
        self._part = part
        self._encoding = encoding
        self._decoder = None if encoding == UTF_8 else codecs.getincrementaldecoder(encoding)("strict")
        self._at_start = part.start == 0
        self._needs_mark = self._at_start and encoding in _NEEDS_BOM
        self._lines = 0
        self._last = ""
        self._bytes = 0

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """Return the next bytes as UTF-8.

        Raises UnreadableInputError for bytes that are not of the encoding, and if the end of the file may be missing.
        """
        if self._decoder is None:
            return data
        self._bytes += len(data)
        if final:
            self._require_all_bytes()
        if self._needs_mark and data:
            self._require_mark(data)
            self._needs_mark = False
        if final and self._decoder.getstate()[0] == _LINE_END:
            # Spark removes byte 10 at the end of each line, and this reader adds it again. After the last line of a
            # file, this is one byte too many if a character has several bytes.
            return b""
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            line = 1 + self._lines + error.object[: error.start].count(_LINE_END)
            raise _undecodable(self._part, self._encoding, error, line) from None
        self._last = text[-1:] or self._last
        if final and self._last not in ("", "\n"):
            # The added byte 10 is part of this character. Without it, the file may end within a character.
            raise self._part.error(
                f"the file ends within a character of {self._encoding.upper()}, or with U+{ord(self._last):04X} and "
                "no line end",
                "Write the whole file, with a line end at its end, or as UTF-8",
            )
        self._lines += text.count("\n")
        if self._at_start and text:
            self._at_start = False
            # If the encoding requires a byte order mark, its decoder has removed the mark.
            text = text if self._encoding in _NEEDS_BOM else text.removeprefix(_BOM)
        return text.encode(UTF_8)

    def _require_all_bytes(self) -> None:
        """Reject a file that begins with the mark of UTF-8, which Spark removes in each encoding."""
        part = self._part
        if part.start == 0 and self._bytes < part.size and not part.path.lower().endswith(_COMPRESSED):
            raise part.error(
                f"the file begins with the bytes {codecs.BOM_UTF8.hex(' ')} of UTF-8, which Spark removed",
                "Give --read-option encoding=UTF-8, or remove these bytes",
            )

    def _require_mark(self, data: bytes) -> None:
        if not data.startswith(_NEEDS_BOM[self._encoding]):
            name = self._encoding.upper()
            raise self._part.error(
                f"the file does not begin with the byte order mark of {name}",
                f"Give the byte order: --read-option encoding={name}LE or {name}BE",
            )


class LineDecoder:
    """Incremental decoder of one part of a file to complete lines of UTF-8."""

    def __init__(self, part: Part, encoding: str) -> None:
        self._part = part
        self._decoder = Decoder(part, encoding)
        self._pending = b""
        self.lines = 0
        """Number of lines that were returned."""

    def feed(self, data: bytes) -> bytes:
        """Return the lines that are complete after these bytes. Each ends with a line end."""
        return self._lines(self._decoder.feed(data), final=False)

    def finish(self) -> bytes:
        """Return the last line, with a line end."""
        return self._lines(self._decoder.feed(b"", final=True), final=True)

    def _lines(self, text: bytes, *, final: bool) -> bytes:
        text = self._pending + text
        if final and text and not text.endswith(_LINE_END):
            text += _LINE_END
        end = text.rfind(_LINE_END) + 1
        text, self._pending = text[:end], text[end:]
        require_utf8(self._part, text, lambda offset: 1 + self.lines + text.count(_LINE_END, 0, offset))
        self.lines += text.count(_LINE_END)
        return text


def require_whole_file(part: Part, encoding: str = "", *, whole: bool = False) -> None:
    """Reject a part of a file if the options or the encoding require the whole file."""
    if part.start and (whole or not keeps_line_ends(encoding or UTF_8)):
        raise part.error(
            "Spark split the file, which has to be read by one task",
            "Leave spark.sql.files.maxPartitionBytes and openCostInBytes to the load",
        )


def _undecodable(part: Part, encoding: str, error: UnicodeDecodeError, line: int) -> Exception:
    wrong = error.object[error.start : error.end][:4]
    return part.error(f"the bytes {wrong.hex(' ')} are not {encoding.upper()}", _FIX, line=line)
