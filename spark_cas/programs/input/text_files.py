"""Read the lines of files in tasks with their exact bytes, using the file systems and codecs of the session."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.parts import FILE, POSITION, Part, PartReader, read_parts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOB_CHARACTERS = re.compile(r"([\[\]{}*?\\])")
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


class InputFile(Protocol):
    """A file of the input."""

    @property
    def path(self) -> str:
        """URI of the file, as in Spark's column `_metadata.file_path`."""

    @property
    def size(self) -> int:
        """Size of the file in bytes."""


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
    schema: "StructType",
    count_rows: Callable[[bytes], int] | None = None,
) -> "DataFrame":
    """Return the rows of strict readers, followed by the columns `FILE` and `POSITION`.

    Tasks compare the number of rows with `count_rows`, and the sizes of files with the list (see `read_parts`).
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    listed = [(each.path, each.size) for each in files]

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return read_parts(batches, listed, reader_of, count_rows)

    lines = _lines(spark, [path for path, _ in listed]).select(
        F.concat(F.col("value").cast("binary"), F.lit(b"\n")).alias("text"),
        F.xxhash64("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("start"),
        (F.col("_metadata.file_block_start") + F.col("_metadata.file_block_length")).alias("end"),
        F.col("_metadata.file_size").alias("size"),
    )
    return lines.mapInArrow(read, with_position(schema))


def first_lines(spark: "SparkSession", file: InputFile, lines: int) -> tuple[bytes, bool]:
    """Return the first lines of the first part of a file, and whether the file has no more."""
    from pyspark.sql import functions as F  # noqa: N812

    text = F.substring(F.concat(F.col("value").cast("binary"), F.lit(b"\n")), 1, _FIRST_BYTES)
    is_last = F.col("_metadata.file_block_length") >= F.col("_metadata.file_size")
    first = _lines(spark, [file.path]).where(F.col("_metadata.file_block_start") == 0)
    rows = first.select(text.alias("text"), is_last.alias("is_last")).take(lines)
    return b"".join(bytes(row.text) for row in rows), len(rows) < lines and all(row.is_last for row in rows)


def with_position(schema: "StructType") -> "StructType":
    """Add the columns `FILE` and `POSITION` to a schema. Raises UsageError if it has a column of that name."""
    from pyspark.sql.types import IntegerType, LongType, StructField, StructType

    for name in schema.names:
        if name.lower() in (FILE, POSITION):
            raise UsageError(f"the input has a column {name}, which a load adds itself: rename it.")
    fields = [StructField(FILE, IntegerType(), nullable=False), StructField(POSITION, LongType(), nullable=False)]
    return StructType([*schema.fields, *fields])


def parsed_schema(schema: str) -> "StructType":
    """Parse the columns of a schema in SQL. Raises UsageError if it has none, and Spark's error if it is invalid."""
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType) or not parsed.fields:
        raise UsageError(f"--schema: expected columns such as 'id STRING, amount DECIMAL(10,2)', not {schema!r}.")
    return parsed


def quoted(name: str) -> str:
    """Quote a column name for an SQL expression."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def literal_path(uri: str) -> str:
    """Escape the path of a file for Spark's readers, which otherwise use some characters as a pattern."""
    return _GLOB_CHARACTERS.sub(r"\\\1", unquote(uri))


def _lines(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    hidden = [path for path in paths if path.rsplit("/", 1)[-1].startswith(("_", "."))]
    if hidden:
        raise UsageError(f"{hidden[0]}: Spark reads no file whose name begins with _ or a point. Rename it.")
    other = [path for path in paths if path.lower().endswith(_FOREIGN)]
    if other:
        raise UsageError(
            f"{other[0]}: Spark reads this compression only in Hadoop's own framing, and fails for the files of the "
            f"usual tools. Nothing was appended. Compress the file with gzip, bzip2 or zstd."
        )
    return spark.read.options(**_LINES).text([literal_path(path) for path in paths])
