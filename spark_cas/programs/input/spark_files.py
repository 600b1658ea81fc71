"""Read files with the file systems and codecs of the session: their lines with the exact bytes, or as whole files."""

from bz2 import BZ2Decompressor
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.exact_values import ReadOptions
from spark_cas.programs.input.listing import literal_paths
from spark_cas.programs.input.parts import (
    FILE,
    POSITION,
    UTF_8,
    Part,
    PartReader,
    count_lines,
    decoded_lines,
    encoding_name,
    keeps_line_ends,
    read_parts,
    require_whole_file,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL_FILES = {
    # Do not derive columns from folders such as region=007. Spark would convert the text 007 to the number 7.
    "recursiveFileLookup": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
"""Options of Spark's sources of files."""
_LINES = {
    **ALL_FILES,
    "lineSep": "\n",
    # Otherwise Hadoop skips longer lines without an error.
    "mapreduce.input.linerecordreader.line.maxlength": str(2**31 - 1),
}
_FOREIGN = (".lz4", ".snappy", ".lzo")
_FIRST_BYTES = 8 << 20
_OPEN_COST = 4 << 20
_PARTITION_BYTES = 128 << 20
VALUE = "value"
MOST_BYTES = 2**31 - 1
"""Maximum size of a file in bytes: the limit of Spark's source binaryFile."""
MOST_COMPRESSED_BYTES = 1 << 30
"""Maximum size of a compressed file in bytes. A task holds the whole file in memory."""
_PIECE = 1 << 20
_ZSTD, _BZIP2 = ".zst", ".bz2"


def whole_file_settings(files: Sequence[InputFile], parallelism: int) -> dict[str, str]:
    """Return Spark settings that prevent file splits and let small files share tasks.

    They must be set while the plan runs. A task reads up to 128 MiB, which is Spark's default, or less if cores would
    be idle. If a file is larger than that, the limit is the size of the largest file, because Spark only splits
    larger files.
    """
    total = sum(each.size + _OPEN_COST for each in files)
    largest = max((each.size for each in files), default=0)
    task_bytes = max(largest, _OPEN_COST, min(_PARTITION_BYTES, total // max(parallelism, 1)))
    return {
        "spark.sql.files.maxPartitionBytes": str(task_bytes),
        "spark.sql.files.openCostInBytes": str(_OPEN_COST),
        # Otherwise Spark reduces the size per task to create more tasks.
        "spark.sql.files.minPartitionNum": "1",
    }


def read_lines(
    spark: "SparkSession",
    files: Sequence[InputFile],
    reader: PartReader,
    schema: T.StructType,
    count_rows: Callable[[bytes], int] | None = None,
) -> "DataFrame":
    """Return the rows of a strict reader, followed by the columns `FILE` and `POSITION`.

    Tasks compare the number of rows with `count_rows`, and the sizes of files with the list (see `read_parts`).
    """
    listed = [(each.path, each.size) for each in files]

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return read_parts(batches, listed, reader, count_rows)

    lines = _lines(spark, files).select(
        F.concat(F.col("value").cast("binary"), F.lit(b"\n")).alias("text"),
        F.xxhash64("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("start"),
        (F.col("_metadata.file_block_start") + F.col("_metadata.file_block_length")).alias("end"),
        F.col("_metadata.file_size").alias("size"),
    )
    return lines.mapInArrow(read, with_position(schema))


def first_lines(spark: "SparkSession", file: InputFile, lines: int) -> tuple[bytes, bool]:
    """Return the first lines of the first part of a file, and whether the file has no more."""
    text = F.substring(F.concat(F.col("value").cast("binary"), F.lit(b"\n")), 1, _FIRST_BYTES)
    is_last = F.col("_metadata.file_block_length") >= F.col("_metadata.file_size")
    first = _lines(spark, [file]).where(F.col("_metadata.file_block_start") == 0)
    rows = first.select(text.alias("text"), is_last.alias("is_last")).take(lines)
    return b"".join(bytes(row.text) for row in rows), len(rows) < lines and all(row.is_last for row in rows)


def with_position(schema: T.StructType) -> T.StructType:
    """Add the columns `FILE` and `POSITION` to a schema."""
    fields = [
        T.StructField(FILE, T.IntegerType(), nullable=False),
        T.StructField(POSITION, T.LongType(), nullable=False),
    ]
    return T.StructType([*schema.fields, *fields])


def parsed_schema(schema: str) -> T.StructType:
    """Parse the columns of a schema in SQL. Raises UsageError if it has none, and Spark's error if it is invalid."""
    parsed = T.StructType.fromDDL(schema)
    if not isinstance(parsed, T.StructType) or not parsed.fields:
        raise UsageError(f"--schema: expected columns such as 'id STRING, amount DECIMAL(10,2)', not {schema!r}.")
    return parsed


def _lines(spark: "SparkSession", files: Sequence[InputFile]) -> "DataFrame":
    other = [each.path for each in files if each.path.lower().endswith(_FOREIGN)]
    if other:
        raise UsageError(
            f"{other[0]}: Spark reads this compression only in Hadoop's own framing, and fails for the files of the "
            f"usual tools. Nothing was appended. Compress the file with gzip, bzip2 or zstd."
        )
    return spark.read.options(**_LINES).text(literal_paths(files))


def text_rows(spark: "SparkSession", files: Sequence[InputFile], read_options: Mapping[str, str]) -> "DataFrame":
    r"""Return a row for each line, with the columns `value`, `FILE` and `POSITION`.

    Only `\n` ends a line. A `\r` before it is part of the value, and an empty line is an empty value. Read files with
    another encoding than UTF-8 under `whole_file_settings`.

    Raises:
        UsageError: for an unsupported option
        UnreadableInputError: from tasks, for invalid content
    """
    read = ReadOptions(read_options, ("encoding",))
    encoding = encoding_name(read.text("encoding", UTF_8))
    schema = T.StructType([T.StructField(VALUE, T.StringType(), nullable=False)])

    def lines_of(part: Part, pieces: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
        require_whole_file(part, encoding)
        for _, text in decoded_lines(part, pieces, encoding):
            lines = pc.split_pattern(pa.array([text[:-1]], pa.large_string()), "\n")
            yield pa.RecordBatch.from_arrays([lines.values.cast(pa.string())], names=[VALUE])

    return read_lines(spark, files, lines_of, schema, count_lines if keeps_line_ends(encoding) else None)


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
    return spark.read.format("binaryFile").options(**ALL_FILES).load(literal_paths(files))


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

    Run it under `whole_file_settings` of these files, so that a task reads few of them. Raises UnreadableInputError
    if a file is cut, damaged or too large, or (from a task) if it differs from the list.
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
