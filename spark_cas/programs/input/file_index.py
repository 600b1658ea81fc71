"""Columns for the file of each row: its index in the input list, and the values of its folders."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.parts import FILE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_URI = "_input_uri"
_ENCODED = re.compile(r"[^A-Za-z0-9_\-!.~'()*:@&=+$,;/]")
"""ASCII characters that Java's URI class percent-encodes in a path."""


def spark_uri(path: str) -> str:
    """Return the percent-encoded URI of a file, as in Spark's column ``_metadata.file_path``."""
    return _ENCODED.sub(lambda result: _encoded(result[0]), path)


def with_file_index(
    spark: "SparkSession", frame: "DataFrame", files: Sequence[InputFile], positions: "Mapping[str, Column]"
) -> "DataFrame":
    """Add the column `FILE` and position columns to a DataFrame of a Spark file source."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    added = [column.alias(name) for name, column in positions.items()]
    if len(files) == 1:
        return frame.select("*", F.lit(0).alias(FILE), *added)
    located = frame.select("*", F.col("_metadata.file_path").alias(_URI), *added)
    rows = [(spark_uri(each.path), index) for index, each in enumerate(files)]
    known = F.broadcast(spark.createDataFrame(rows, f"{_URI} STRING, {FILE} INT"))
    unknown = F.raise_error(F.concat(F.lit("Spark read a file that is not in the list: "), F.col(_URI)))
    index = F.coalesce(F.col(FILE), unknown.cast("int"))
    return located.join(known, on=_URI, how="left").withColumn(FILE, index).drop(_URI)


def with_folder_columns(spark: "SparkSession", frame: "DataFrame", files: Sequence[InputFile]) -> "DataFrame":
    """Add a string column for each folder such as ``region=007``, using the column `FILE`.

    Raises:
        UsageError: if only some files are in such folders, or a folder has the name of a column
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    names = _folder_names(files, frame.columns)
    if not names:
        return frame
    rows = [(index, *(value for _, value in each.partitions)) for index, each in enumerate(files)]
    fields = [StructField(FILE, IntegerType()), *(StructField(name, StringType()) for name in names)]
    known = F.broadcast(spark.createDataFrame(rows, StructType(fields)))
    return frame.join(known, on=FILE, how="left")


def _folder_names(files: Sequence[InputFile], columns: Sequence[str]) -> list[str]:
    first = [name for name, _ in files[0].partitions] if files else []
    for each in files:
        if [name for name, _ in each.partitions] != first:
            raise UsageError(
                f"--input: file {each.path} is not in the same folders name=value as file {files[0].path}. Nothing "
                f"was appended. Load these files apart."
            )
    used = {name.lower() for name in columns}
    for name in first:
        if name.lower() in used:
            raise UsageError(
                f"--input: folder {name}=... of file {files[0].path} has the name of a column of the files. Nothing "
                f"was appended. Rename the folder, or load the folder below it."
            )
        used.add(name.lower())
    return first


def _encoded(character: str) -> str:
    if character.isascii() or character.isspace():
        return "".join(f"%{byte:02X}" for byte in character.encode())
    return character  # Java does not encode other characters
