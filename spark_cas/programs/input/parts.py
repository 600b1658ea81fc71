"""Group the lines that a task reads into parts of files, and pass each part to a strict reader."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import xxhash

from spark_cas.core.errors import UnreadableInputError

FILE = "_input_file"
"""Column with the index of the row's file in the list of files."""
POSITION = "_input_position"
"""Column with a number that increases with each row of a file, across its parts."""
POSITION_COLUMNS = (FILE, POSITION)

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


def shown(value: object) -> str:
    """Return a value as text for an error message, shortened if necessary."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")


class PartReader(Protocol):
    """Converts the bytes of one part to batches of rows."""

    def feed(self, data: bytes) -> "Iterator[pa.RecordBatch]":
        """Read the next bytes of the part, which end with a line end, and yield rows."""

    def finish(self) -> "Iterator[pa.RecordBatch]":
        """Yield the remaining rows at the end of the part."""


def file_key(path: str) -> int:
    """Return Spark's `xxhash64` of a file's path."""
    unsigned = xxhash.xxh64_intdigest(path.encode(), seed=_SPARK_HASH_SEED)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def read_parts(
    batches: "Iterator[pa.RecordBatch]",
    files: Sequence[tuple[str, int]],
    reader_of: Callable[[Part], PartReader],
    count_rows: Callable[[bytes], int] | None = None,
) -> "Iterator[pa.RecordBatch]":
    """Read lines that arrive as batches with the columns text, file key, start and end of the part, file size.

    The lines arrive in the order of each file. The result has the columns of the reader, then `FILE` and `POSITION`.

    Args:
        batches: the lines
        files: path and listed size of each file
        reader_of: makes the reader of a part
        count_rows: counts the rows in some lines without the reader; None if the format has no such count

    Raises:
        UnreadableInputError: if the size of a file differs from the list, or a reader returns a different number of
          rows than `count_rows`

    It also raises the errors of the readers.
    """
    indexes = {file_key(path): index for index, (path, _) in enumerate(files)}
    current: tuple[int, int] | None = None
    rows = _PartRows()
    for batch in batches:
        for key, start, end, size, data in _runs(batch):
            if (key, start) != current:
                yield from rows.finish()
                current = key, start
                path, listed = files[indexes[key]]
                part = Part(path, indexes[key], start, is_last=end >= size, size=size)
                if size != listed:
                    raise part.error(
                        f"the file has {size} bytes, and was listed with {listed}: it changed during the load",
                        "Run the load again when nothing writes to the input",
                    )
                rows = _PartRows(part, reader_of(part), count_rows)
            yield from rows.feed(data)
    yield from rows.finish()


def count_lines(lines: bytes) -> int:
    """Return the number of lines. Each has a line end."""
    return lines.count(b"\n")


def count_filled_lines(lines: bytes) -> int:
    """Return the number of lines that contain more than spaces."""
    return sum(1 for line in lines.split(b"\n") if line.strip(b" \t\r"))


def require_text(part: Part, first: bytes, name: str) -> None:
    """Reject a file that begins like a binary format."""
    for magic, binary in _MAGIC:
        if first.startswith(magic) and (not magic.isalnum() or _CONTROL.search(first[:_MAGIC_BYTES])):
            raise part.error(
                f"the file is not {name}: it begins as {binary} does",
                "Give its --format, or remove it from the input",
            )


class _PartRows:
    """Rows of a part with their positions."""

    def __init__(
        self,
        part: Part | None = None,
        reader: PartReader | None = None,
        count: Callable[[bytes], int] | None = None,
    ) -> None:
        self._part = part
        self._reader = reader
        self._count = count
        self._counted = 0
        self._returned = 0
        self._index = 0 if part is None else part.index
        self._position = 0 if part is None else part.start * _ROWS_PER_BYTE

    def feed(self, data: bytes) -> "Iterator[pa.RecordBatch]":
        if self._count:
            self._counted += self._count(data)
        return map(self._with_position, self._reader.feed(data) if self._reader else ())

    def finish(self) -> "Iterator[pa.RecordBatch]":
        yield from map(self._with_position, self._reader.finish() if self._reader else ())
        if self._part and self._count and self._returned != self._counted:
            raise self._part.error(
                f"the file has {self._counted} rows, and the reader returned {self._returned}",
                "This is a defect of spark_cas: report it, with the file if possible",
            )

    def _with_position(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._returned += batch.num_rows
        first = self._position
        self._position += batch.num_rows
        files = pa.array(np.full(batch.num_rows, self._index, dtype=np.int32))
        positions = pa.array(np.arange(first, self._position, dtype=np.int64))
        names = [*batch.schema.names, *POSITION_COLUMNS]
        return pa.RecordBatch.from_arrays([*batch.columns, files, positions], names=names)


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
