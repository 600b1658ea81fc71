"""Whole files as rows, read with the file systems of the session."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import is_hidden, literal
from spark_cas.programs.input.parts import FILE, POSITION, Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_BYTES = 2**31 - 1
"""Maximum size of a file in bytes: the limit of Spark's source binaryFile."""
_OPTIONS = {"recursiveFileLookup": "true", "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def binary_rows(spark: "SparkSession", files: Sequence[InputFile]) -> "DataFrame":
    """Return one row per file: `value`, `path`, `length`, `modificationTime`, `FILE` and `POSITION`.

    Spark's source skips empty files, so the driver adds their rows. A Spark job compares the sizes of all files with
    the list, without reading them.

    Raises:
        UsageError: if there is no file or if Spark skips its name
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
        if is_hidden(each.path.rpartition("/")[2]):
            raise UsageError(f"{each.path}: Spark skips files of this name. Nothing was appended. Rename the file.")
    return spark.read.format("binaryFile").options(**_OPTIONS).load([literal(each.path) for each in files])


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
