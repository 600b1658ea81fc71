"""Avro files as a DataFrame. Tasks decode the bytes that Spark reads, and each value is exact."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.input.avro_container import invalid_values, read_header, read_records, require_fastavro
from spark_cas.programs.input.avro_schema import parse_schema
from spark_cas.programs.input.binary_files import FileNumbers, contents
from spark_cas.programs.input.merged_columns import arrow_type, merged_columns
from spark_cas.programs.input.parts import POSITION_COLUMNS, Part
from spark_cas.programs.input.text_files import with_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HEADER_BYTES = 16 << 20
"""Maximum number of bytes that are read from each file to find its schema. Larger headers are rejected."""
_RESULT = pa.schema([("file", pa.int32()), ("schema", pa.string()), ("problem", pa.string())])


def avro_rows(spark: "SparkSession", files: Sequence[InputFile]) -> "DataFrame":
    """Return the records of Avro files, with the columns `FILE` and `POSITION`.

    The position is the number of the record in its file. Runs one Spark job, which reads the schema of each file.

    Args:
        spark: the session, classic or Connect
        files: all files of the input, in the order of their rows

    Raises:
        UsageError: if fastavro is missing, or for a type that a load does not read or that differs between files
        UnreadableInputError: for a file with an invalid header; from tasks for any invalid content
    """
    require_fastavro()
    result = contents(spark, files)  # one listing by Spark for both jobs; it omits files that are empty by then
    schemas = _schemas(result, files)
    paths = {text: files[members[0]].path for text, members in schemas.items()}
    columns = merged_columns((path, parse_schema(text, path).spark) for text, path in paths.items())
    result_schema = with_position(columns)
    target = arrow_type(columns)
    texts = list(schemas)
    schema_of = np.zeros(len(files), np.int32)
    for number, members in enumerate(schemas.values()):
        schema_of[members] = number
    numbers = FileNumbers(files)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        record_of = cache(parse_schema)
        for batch in batches:
            for path, content in zip(batch["path"].to_pylist(), batch["content"], strict=True):
                data = content.as_py()
                index = numbers.of(path, len(data))
                part = Part(path, index)
                header = read_header(part, data)
                if header.schema != texts[schema_of[index]]:
                    raise part.error("the schema of the file changed during the load", "Run the load again")
                record = record_of(header.schema, "")
                first = 0
                for decoded in read_records(part, data, header, record):
                    try:
                        values = record.converted(decoded, target)
                    except (ValueError, IndexError, pa.ArrowException) as error:
                        raise invalid_values(part, first, len(decoded), error) from error
                    yield _with_position(values, index, first)
                    first += len(decoded)

    return result.select("path", "content").mapInArrow(read, result_schema)


def _schemas(result: "DataFrame", files: Sequence[InputFile]) -> dict[str, list[int]]:
    """Return the schemas in the order of the first file that has each, with the indexes of their files."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    numbers = FileNumbers(files)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, size, content in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                index, schema, problem = -1, None, None
                try:
                    index = numbers.of(path, size)
                    schema = read_header(Part(path, index), content).schema
                except UnreadableInputError as error:
                    problem = error.message
                row = {"file": index, "schema": schema, "problem": problem}
                yield pa.RecordBatch.from_pylist([row], _RESULT)

    head = F.substring("content", 1, _HEADER_BYTES).alias("head")
    heads = result.select("path", F.length("content").alias("size"), head)
    groups = heads.mapInArrow(read, "file INT, schema STRING, problem STRING").groupBy("schema", "problem")
    rows = groups.agg(F.sort_array(F.collect_list("file")).alias("files")).collect()
    rows.sort(key=lambda row: row.files[0])
    for row in rows:
        if row.problem is not None:
            raise UnreadableInputError(row.problem)
    schemas = {row.schema: list(row.files) for row in rows}
    if missing := set(range(len(files))).difference(*schemas.values()):
        raise Part(files[min(missing)].path).error(
            "the file has 0 bytes, so it is no Avro file, or it was removed",
            "Write it again, or remove it from the input",
        )
    return schemas


def _with_position(values: pa.Array, index: int, first: int) -> pa.RecordBatch:
    count = len(values)
    file = pa.array(np.full(count, index, np.int32))
    position = pa.array(np.arange(first, first + count, dtype=np.int64))
    names = [each.name for each in values.type.fields]
    return pa.RecordBatch.from_arrays([*values.flatten(), file, position], names=[*names, *POSITION_COLUMNS])
