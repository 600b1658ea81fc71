"""Group the lines that a task reads into parts of files, decode them strictly, and pass each part to a reader."""

import codecs
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

import numpy as np
import pyarrow as pa
import xxhash

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import spark_uri

FILE = "_input_file"
"""Column with the index of the row's file in the list of files."""
POSITION = "_input_position"
"""Column with a number that increases with each row of a file, across its parts."""
POSITION_COLUMNS = (FILE, POSITION)
BAD = "_input_bad"
"""Column with a bad row as a JSON object; null for a valid row. The other columns of a bad row are null."""

_OWN_PREFIX = "_input_"
"""Prefix of the names of all columns that a load adds."""
_SPARK_HASH_SEED = 42
_ROWS_PER_BYTE = 1 << 20
"""Factor from the first byte of a part to its first position. A byte of a compressed file may contain many rows."""
SHOWN_CHARACTERS = 40
"""Maximum length of a value in an error message."""
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_MAGIC = (
    (b"PAR1", "Parquet"),
    (b"ORC", "ORC"),
    (b"Obj\x01", "Avro"),
    (b"ARROW1", "Arrow"),
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip (or a spreadsheet)"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet"),
)
_MAGIC_BYTES = 64
UTF_8 = "utf-8"
_BOM = codecs.BOM_UTF8.decode(UTF_8)
_NEEDS_BOM = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
_FIX = "Convert the file, or give its encoding as --read-option encoding=NAME"
_LINE_END = b"\n"
_COMPRESSED = (".gz", ".bz2", ".zst", ".deflate")


@dataclass(frozen=True, slots=True)
class Part:
    """A whole file, or the lines of it that a task reads."""

    path: str
    index: int = 0
    start: int = 0
    """Start of the part in the file, in bytes. Line numbers are known only for parts that start at 0."""
    is_last: bool = True
    """Whether the part ends with the file."""
    size: int = 0
    """Size of the file in bytes, before decompression; 0 if unknown."""

    def error(self, problem: str, fix: str, *, line: int = 0) -> UnreadableInputError:
        """Return an error at a line of this part, or for the whole file if ``line`` is 0."""
        return UnreadableInputError(f"{self.place(line) if line else self.path}: {problem}. {fix}.")

    def place(self, line: int) -> str:
        """Return the text for a line of this part. Lines count from 1."""
        after = f" of the part after byte {self.start}" if self.start else ""
        return f"{self.path}, line {line}{after}"

    def with_bad_rows(self, valid: pa.RecordBatch, bad: Sequence[tuple[int, str, str]]) -> pa.RecordBatch:
        """Add the column `BAD` to valid rows, followed by the bad rows: line, problem and text of each."""
        after = {"after_byte": self.start} if self.start else {}
        rows = [
            json.dumps({"line": line, **after, "code": "MALFORMED", "problem": problem, "text": text})
            for line, problem, text in sorted(bad)
        ]
        columns = [pa.concat_arrays([each, pa.nulls(len(bad), each.type)]) for each in valid.columns]
        values = pa.array([*[None] * valid.num_rows, *rows], pa.string())
        return pa.RecordBatch.from_arrays([*columns, values], names=[*valid.schema.names, BAD])


def shown(value: object) -> str:
    """Return a value as text for an error message, shortened if necessary."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")


PartReader = Callable[[Part, Iterator[bytes]], Iterator[pa.RecordBatch]]
"""A function that converts the bytes of a part to batches of rows. They arrive in pieces that end with a line end."""


def require_free_names(names: Iterable[str]) -> None:
    """Raise UsageError for a column of the input that may have the name of a column that a load adds."""
    for name in names:
        if name.lower().startswith(_OWN_PREFIX):
            raise UsageError(
                f"--input: column {name} begins with {_OWN_PREFIX}, as the columns that a load adds. Nothing was "
                f"appended. Rename it."
            )


def file_key(path: str) -> int:
    """Return Spark's `xxhash64` of the column ``_metadata.file_path``."""
    unsigned = xxhash.xxh64_intdigest(spark_uri(path).encode(), seed=_SPARK_HASH_SEED)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def read_parts(
    batches: "Iterator[pa.RecordBatch]",
    files: Sequence[tuple[str, int]],
    reader: PartReader,
    count_rows: Callable[[bytes], int] | None = None,
) -> "Iterator[pa.RecordBatch]":
    """Read lines that arrive as batches with the columns text, file key, start and end of the part, file size.

    The lines arrive in the order of each file. The result has the columns of the reader, then `FILE` and `POSITION`.

    ``files`` are the path and listed size of each file. ``count_rows`` counts the rows in some lines without the
    reader. It is None if the format has no such count.

    Raises UnreadableInputError if the size of a file differs from the list, or if a reader returns a different number
    of rows than `count_rows`. It also raises the errors of the readers.
    """
    indexes = {file_key(path): index for index, (path, _) in enumerate(files)}
    runs = (run for batch in batches for run in _runs(batch))
    for (key, start, end, size), pieces in groupby(runs, key=lambda run: run[:4]):
        path, listed = files[indexes[key]]
        part = Part(path, indexes[key], start, is_last=end >= size, size=size)
        if size != listed:
            raise part.error(
                f"the file has {size} bytes, and was listed with {listed}: it changed during the load",
                "Run the load again when nothing writes to the input",
            )
        yield from _part_rows(part, reader, (data for *_, data in pieces), count_rows)


def with_positions(batch: pa.RecordBatch, file: int, first: int) -> pa.RecordBatch:
    """Add the columns `FILE` and `POSITION` to rows of one file. Their positions begin with ``first``."""
    files = pa.array(np.full(batch.num_rows, file, np.int32))
    positions = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    names = [*batch.schema.names, *POSITION_COLUMNS]
    return pa.RecordBatch.from_arrays([*batch.columns, files, positions], names=names)


def count_lines(lines: bytes) -> int:
    """Return the number of lines. Each has a line end."""
    return lines.count(b"\n")


def count_filled_lines(lines: bytes) -> int:
    """Return the number of lines that contain more than spaces."""
    return sum(1 for line in lines.split(b"\n") if line.strip(b" \t\r"))


def text_pieces(part: Part, pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the pieces of a part. Reject a file that begins like a binary format."""
    is_first = part.start == 0
    for data in pieces:
        if is_first and data:
            is_first = False
            for magic, binary in _MAGIC:
                if data.startswith(magic) and (not magic.isalnum() or _CONTROL.search(data[:_MAGIC_BYTES])):
                    raise part.error(
                        f"the file is not {name}: it begins as {binary} does",
                        "Give its --format, or remove it from the input",
                    )
        yield data


def _part_rows(
    part: Part, reader: PartReader, pieces: Iterator[bytes], count_rows: Callable[[bytes], int] | None
) -> Iterator[pa.RecordBatch]:
    counted = returned = size = 0

    def counting() -> Iterator[bytes]:
        nonlocal counted, size
        for data in pieces:
            counted += count_rows(data) if count_rows else 0
            size += len(data)
            yield data

    remaining = counting()
    for batch in reader(part, remaining):
        yield with_positions(batch, part.index, part.start * _ROWS_PER_BYTE + returned)
        returned += batch.num_rows
    deque(remaining, maxlen=0)  # also count the lines that a defective reader leaves
    _require_listed_size(part, size)
    if count_rows and returned != counted:
        raise part.error(
            f"the file has {counted} rows, and the reader returned {returned}",
            "This is a defect of spark_cas: report it, with the file if possible",
        )


def _require_listed_size(part: Part, size: int) -> None:
    """Reject a whole, uncompressed file of which Spark read another number of bytes than were listed.

    Spark removes the byte order mark of UTF-8, and `read_lines` adds a line end to a last line that has none.
    """
    is_whole = part.start == 0 and part.is_last and part.size and not part.path.lower().endswith(_COMPRESSED)
    mark = len(codecs.BOM_UTF8)
    if is_whole and size - part.size not in (0, 1, -mark, 1 - mark):
        raise part.error(
            f"Spark read {size} bytes of a file that was listed with {part.size}: it changed during the load, or its "
            f"name does not show how it is compressed",
            "Run the load again when nothing writes to the input",
        )


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Return key, start, end, file size and bytes of each run of lines of the same part."""
    if not batch.num_rows:
        return
    text, *numbers = batch.columns
    keys, starts, ends, sizes = (each.to_numpy() for each in numbers)
    changes = np.flatnonzero((np.diff(keys) != 0) | (np.diff(starts) != 0)) + 1
    bounds = [0, *changes.tolist(), batch.num_rows]
    for first, end in pairwise(bounds):
        data = _joined(text.slice(first, end - first))
        yield int(keys[first]), int(starts[first]), int(ends[first]), int(sizes[first]), data


def _joined(text: pa.Array) -> bytes:
    """Return the values of a binary array as one buffer, which has no gaps."""
    _, offsets, data = text.buffers()
    width = np.int64 if pa.types.is_large_binary(text.type) else np.int32
    bounds = np.frombuffer(offsets, width)
    first, end = int(bounds[text.offset]), int(bounds[text.offset + len(text)])
    return bytes(data[first:end]) if data is not None else b""


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


def decoded(part: Part, pieces: Iterable[bytes], encoding: str, *, has_end: bool = True) -> Iterator[bytes]:
    """Decode the pieces of a part to UTF-8. Bytes that are already UTF-8 are not checked.

    If ``has_end`` is false, the pieces are only the beginning of the part.

    Raises UnreadableInputError for bytes that are not of the encoding, and if the end of the file may be missing.
    """
    if encoding == UTF_8:
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    has_mark = part.start == 0 and encoding not in _NEEDS_BOM  # otherwise the decoder removes the byte order mark
    lines, last, size = 0, "", 0
    for data, is_end in chain(((each, False) for each in pieces), [(b"", True)] if has_end else []):
        if data and not size:
            _require_mark(part, data, encoding)
        size += len(data)
        if is_end:
            _require_all_bytes(part, size)
            if decoder.getstate()[0] == _LINE_END:
                # Spark removes byte 10 at the end of each line, and this reader adds it again. After the last line of
                # a file, this is one byte too many if a character has several bytes.
                return
        try:
            text = decoder.decode(data, is_end)
        except UnicodeDecodeError as error:
            line = 1 + lines + error.object[: error.start].count(_LINE_END)
            raise _undecodable(part, encoding, error, line) from None
        last = text[-1:] or last
        if is_end and last not in ("", "\n"):
            # The added byte 10 is part of this character. Without it, the file may end within a character.
            raise part.error(
                f"the file ends within a character of {encoding.upper()}, or with U+{ord(last):04X} and no line end",
                "Write the whole file, with a line end at its end, or as UTF-8",
            )
        lines += text.count("\n")
        if has_mark and text:
            has_mark = False
            text = text.removeprefix(_BOM)
        yield text.encode(UTF_8)


def decoded_lines(part: Part, pieces: Iterable[bytes], encoding: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a part as UTF-8, in pieces of whole lines, each with the number of its first line.

    Each line ends with a line end. Raises UnreadableInputError as `decoded`.
    """
    first = 1
    for lines in _whole_lines(decoded(part, pieces, encoding)):
        _require_utf8_lines(part, lines, first)
        yield first, lines
        first += lines.count(_LINE_END)


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    pending = b""
    for piece in pieces:
        lines = pending + piece
        end = lines.rfind(_LINE_END) + 1
        pending = lines[end:]
        if end:
            yield lines[:end]
    if pending:
        yield pending + _LINE_END


def _require_utf8_lines(part: Part, lines: bytes, first: int) -> None:
    require_utf8(part, lines, lambda offset: first + lines.count(_LINE_END, 0, offset))


def _require_all_bytes(part: Part, size: int) -> None:
    """Reject a file that begins with the mark of UTF-8, which Spark removes in each encoding."""
    if part.start == 0 and size < part.size and not part.path.lower().endswith(_COMPRESSED):
        raise part.error(
            f"the file begins with the bytes {codecs.BOM_UTF8.hex(' ')} of UTF-8, which Spark removed",
            "Give --read-option encoding=UTF-8, or remove these bytes",
        )


def _require_mark(part: Part, data: bytes, encoding: str) -> None:
    if part.start == 0 and encoding in _NEEDS_BOM and not data.startswith(_NEEDS_BOM[encoding]):
        name = encoding.upper()
        raise part.error(
            f"the file does not begin with the byte order mark of {name}",
            f"Give the byte order: --read-option encoding={name}LE or {name}BE",
        )


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
