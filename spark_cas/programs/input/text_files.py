"""Read the lines of files in tasks with their exact bytes, using the file systems and codecs of the session."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import literal_paths
from spark_cas.programs.input.parts import (
    FILE,
    POSITION,
    UTF_8,
    LineDecoder,
    Part,
    PartReader,
    count_lines,
    encoding_name,
    keeps_line_ends,
    read_parts,
    require_whole_file,
)
from spark_cas.programs.input.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINES = {
    "lineSep": "\n",
    "recursiveFileLookup": "true",  # no columns for folder names
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    # Otherwise Hadoop skips longer lines without an error.
    "mapreduce.input.linerecordreader.line.maxlength": str(2**31 - 1),
}
_FOREIGN = (".lz4", ".snappy", ".lzo")
_FIRST_BYTES = 8 << 20
_OPEN_COST = 4 << 20
_PARTITION_BYTES = 128 << 20
VALUE = "value"


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
    reader_of: Callable[[Part], PartReader],
    schema: T.StructType,
    count_rows: Callable[[bytes], int] | None = None,
) -> "DataFrame":
    """Return the rows of strict readers, followed by the columns `FILE` and `POSITION`.

    Tasks compare the number of rows with `count_rows`, and the sizes of files with the list (see `read_parts`).
    """
    listed = [(each.path, each.size) for each in files]

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return read_parts(batches, listed, reader_of, count_rows)

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
    """Add the columns `FILE` and `POSITION` to a schema. Raises UsageError if it has a column of that name."""
    for name in schema.names:
        if name.lower() in (FILE, POSITION):
            raise UsageError(f"the input has a column {name}, which a load adds itself: rename it.")
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
    read = ReadOptions(read_options, ("encoding",), {"charset": "encoding"})
    encoding = encoding_name(read.text("encoding", UTF_8))
    schema = T.StructType([T.StructField(VALUE, T.StringType(), nullable=False)])
    count = count_lines if keeps_line_ends(encoding) else None
    return read_lines(spark, files, partial(_TextReader, encoding=encoding), schema, count)


class _TextReader:
    """Reader of one part of a text file in a task."""

    def __init__(self, part: Part, encoding: str) -> None:
        require_whole_file(part, encoding)
        self._decoder = LineDecoder(part, encoding)

    def feed(self, data: bytes) -> Iterator[pa.RecordBatch]:
        yield from _batches(self._decoder.feed(data))

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from _batches(self._decoder.finish())


def _batches(text: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a text that ends with a line end."""
    if text:
        lines = pc.split_pattern(pa.array([text[:-1]], pa.large_string()), "\n")
        yield pa.RecordBatch.from_arrays([lines.values.cast(pa.string())], names=[VALUE])
