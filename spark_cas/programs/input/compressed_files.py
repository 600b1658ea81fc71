"""Check zstd and bzip2 files as a whole. Spark's readers omit rows of some damaged files without an error."""

from bz2 import BZ2Decompressor
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cas.core.input_list import InputFile
from spark_cas.programs.input.binary_files import FileNumbers, contents
from spark_cas.programs.input.parts import Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 1 << 30
"""Maximum size of a compressed file in bytes. A task holds the whole file in memory."""
_PIECE = 1 << 20
_ZSTD, _BZIP2 = ".zst", ".bz2"


def checked_files(files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files that `require_complete` checks. An empty file has no row to lose."""
    return [each for each in files if each.size and each.path.lower().endswith((_ZSTD, _BZIP2))]


def require_complete(spark: "SparkSession", files: Sequence[InputFile]) -> None:
    """Decompress `checked_files` in the tasks of one Spark job, and reject the first one that is cut or damaged.

    Run it under `whole_file_settings` of these files, so that a task reads few of them.

    Raises:
        UsageError: if Spark skips the name of a file
        UnreadableInputError: if a file is cut, damaged or too large, or (from a task) if it differs from the list
    """
    numbers = FileNumbers(files)
    for each in files:
        if each.size > MOST_BYTES:
            raise Part(each.path).error(
                f"the file has {each.size} bytes, and a load checks zstd and bzip2 files of up to {MOST_BYTES} bytes",
                "Decompress it, or compress it with gzip",
            )

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch["path"].to_pylist(), batch["content"], strict=True):
                data = content.as_buffer()
                index = numbers.of(path, data.size)
                try:
                    decompress(path, data)
                except OSError as error:
                    yield pa.RecordBatch.from_pydict({"file": pa.array([index], pa.int32()), "problem": [str(error)]})

    damaged = contents(spark, files).select("path", "content").mapInArrow(check, "file INT, problem STRING").collect()
    if damaged:
        first = min(damaged, key=lambda row: row.file)
        raise Part(files[first.file].path).error(
            f"the file is cut or damaged: {first.problem.rstrip('.')}", "Replace it with a complete copy"
        )


def decompress(path: str, data: pa.Buffer) -> None:
    """Decompress a file in pieces, without the result. Raises OSError if it is not valid to its last byte."""
    if path.lower().endswith(_BZIP2):
        _decompress_bzip2(memoryview(data))
        return
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while stream.read(_PIECE):
            pass


def _decompress_bzip2(data: memoryview) -> None:
    at = 0
    while at < len(data):
        member = BZ2Decompressor()
        while not member.eof:
            piece = data[at : at + _PIECE] if member.needs_input else b""
            if member.needs_input and not piece:
                raise OSError("the file ends within a bzip2 stream")
            at += len(piece)
            member.decompress(piece, _PIECE)
        at -= len(member.unused_data)
