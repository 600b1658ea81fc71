"""Text files as a DataFrame. Each line is a value."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.programs.input.decoding import UTF_8, LineDecoder, encoding_name, keeps_line_ends, require_whole_file
from spark_cas.programs.input.parts import Part, count_lines
from spark_cas.programs.input.read_options import ReadOptions
from spark_cas.programs.input.text_files import InputFile, read_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE = "value"


def text_rows(spark: "SparkSession", files: Sequence[InputFile], read_options: Mapping[str, str]) -> "DataFrame":
    r"""Return a row for each line, with the columns `value`, `FILE` and `POSITION`.

    Only `\n` ends a line. A `\r` before it is part of the value, and an empty line is an empty value. Read files with
    another encoding than UTF-8 under `whole_file_settings`.

    Raises:
        UsageError: for an unsupported option
        UnreadableInputError: from tasks, for invalid content
    """
    from pyspark.sql.types import StringType, StructField, StructType

    read = ReadOptions(read_options, ("encoding",), {"charset": "encoding"})
    encoding = encoding_name(read.text("encoding", UTF_8))
    schema = StructType([StructField(VALUE, StringType(), nullable=False)])
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
