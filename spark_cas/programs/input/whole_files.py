"""Read whole files with the file systems of the session: as rows, or to check that compressed text is complete."""

from bz2 import BZ2Decompressor
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import literal_paths
from spark_cas.programs.input.parts import FILE, POSITION, Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BYTES = 2**31 - 1
"""Maximum size of a file in bytes: the limit of Spark's source binaryFile."""
_OPTIONS = {"recursiveFileLookup": "true", "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
MOST_COMPRESSED_BYTES = 1 << 30
"""Maximum size of a compressed file in bytes. A task holds the whole file in memory."""
_PIECE = 1 << 20
_ZSTD, _BZIP2 = ".zst", ".bz2"


def binary_rows(spark: "SparkSession", files: Sequence[InputFile]) -> "DataFrame":
    """Return one row per file: `value`, `path`, `length`, `modificationTime`, `FILE` and `POSITION`.

    Spark's source skips empty files, so the driver adds their rows. A Spark job compares the sizes of all files with
    the list, without reading them.

    Raises:
        UsageError: if there is no file
        UnreadableInputError: if a file is too large, or (also from a task) if its size differs from the list
    """
    numbers = FileNumbers(files)
    result = contents(spark, files)
    listed = result.select("path", "length").toArrow()
    read_files = set(map(numbers.of, listed["path"].to_pylist(), listed["length"].to_pylist()))
    for index, each in enumerate(files):
        if each.size and index not in read_files:
            raise Part(each.path, index).error(
                f"Spark found 0 bytes in a file that was listed with {each.size}, or no file", "Run the load again"
            )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sizes = pc.binary_length(batch["value"])
            index = pa.array(map(numbers.of, batch["path"].to_pylist(), sizes.to_pylist()), pa.int32())
            position = pa.array(np.zeros(batch.num_rows, np.int64))
            rows = pa.RecordBatch.from_arrays(
                [*batch.columns, index, position], names=[*batch.schema.names, FILE, POSITION]
            )
            yield rows.filter(pc.greater(sizes, 0))

    rows = result.selectExpr("content AS value", "path", "length", "modificationTime").mapInArrow(
        read,
        "value BINARY NOT NULL, path STRING NOT NULL, length BIGINT NOT NULL, modificationTime TIMESTAMP NOT NULL, "
        f"{FILE} INT NOT NULL, {POSITION} BIGINT NOT NULL",
    )
    empty = [(each.path, each.modified_ms, index) for index, each in enumerate(files) if not each.size]
    if not empty:
        return rows
    added = spark.createDataFrame(empty, f"path STRING NOT NULL, modified BIGINT NOT NULL, {FILE} INT NOT NULL")
    return rows.union(
        added.selectExpr(
            "X'' AS value", "path", "0L AS length", "timestamp_millis(modified)", FILE, f"0L AS {POSITION}"
        )
    )


def contents(spark: "SparkSession", files: Sequence[InputFile]) -> "DataFrame":
    """Return the columns of Spark's source binaryFile for files of a listing.

    Raises UsageError if there is no file or if Spark skips its name, and UnreadableInputError if it is too large.
    """
    if not files:
        raise UsageError("--input: no file. Nothing was appended.")
    for each in files:
        if each.size > MOST_BYTES:
            raise UnreadableInputError(
                f"{each.path} has {each.size} bytes, and Spark reads whole files of up to {MOST_BYTES} bytes. "
                f"Nothing was appended. Split the file."
            )
    return spark.read.format("binaryFile").options(**_OPTIONS).load(literal_paths(files))


class FileNumbers:
    """The index of each file in the list, and its listed size."""

    def __init__(self, files: Sequence[InputFile]) -> None:
        self._numbers = {each.path: (index, each.size) for index, each in enumerate(files)}

    def of(self, path: str, size: int) -> int:
        """Return the index of a file. Raises UnreadableInputError if it is not as listed."""
        index, listed = self._numbers.get(path, (-1, -1))
        if index < 0:
            raise Part(path).error("Spark read a file that is not in the list of the input", "Run the load again")
        if size != listed:
            raise Part(path).error(
                f"Spark read {size} bytes of a file that was listed with {listed}: it changed during the load",
                "Run the load again when nothing writes to the input",
            )
        return index


def checked_files(files: Sequence[InputFile]) -> list[InputFile]:
    """Return the files that `require_complete` checks. An empty file has no row to lose."""
    return [each for each in files if each.size and each.path.lower().endswith((_ZSTD, _BZIP2))]


def require_complete(spark: "SparkSession", files: Sequence[InputFile]) -> None:
    """Decompress `checked_files` in the tasks of one Spark job, and reject the first one that is cut or damaged.

    Run it under `whole_file_settings` of these files, so that a task reads few of them.

    Raises:
        UnreadableInputError: if a file is cut, damaged or too large, or (from a task) if it differs from the list
    """
    numbers = FileNumbers(files)
    for each in files:
        if each.size > MOST_COMPRESSED_BYTES:
            raise Part(each.path).error(
                f"the file has {each.size} bytes, and a load checks zstd and bzip2 files of up to 1 GiB",
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
