"""Avro files as a DataFrame. Tasks decode the bytes that Spark reads, and reject any that violate the format."""

import bz2
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.avro_schema import AvroType, parse_schema
from spark_cas.programs.input.columns import arrow_type, merged_columns
from spark_cas.programs.input.parts import Part, require_free_names, with_positions
from spark_cas.programs.input.spark_files import FileNumbers, contents, with_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAGIC = b"Obj\x01"
_SPARK_VERSION = "org.apache.spark.version"
_JULIAN = "org.apache.spark.legacyDateTime"
"""Metadata key with which Spark 3.0 or later marks a file whose old dates are in the Julian calendar."""
_SYNC_BYTES = 16
_HEADER_BYTES = 16 << 20
"""Maximum number of bytes that are read from each file to find its schema. Larger headers are rejected."""
_MOST_ROWS = 10_000
_BATCH_BYTES = 8 << 20
_MOST_RECORD_BYTES = 1 << 30
"""Maximum size of a record in bytes. Arrow stores at most 2 GiB of text in a column of a batch."""
_CRC_BYTES = 4
_MOST_SNAPPY_RATIO = 32
"""Maximum compression ratio of snappy, which encodes at most 64 bytes in 3. Without this check, a wrong length field
would allocate gigabytes."""
_FIX = "Write the file again, or remove it from the input"
_INVALID = (EOFError, LookupError, ValueError, OverflowError, pa.ArrowException)
"""Exceptions of fastavro, the schema and Arrow for bytes that do not match the schema."""
_RESULT = pa.schema([("file", pa.int32()), ("schema", pa.string()), ("problem", pa.string())])


@dataclass(frozen=True, slots=True)
class Header:
    """Header of an Avro file."""

    schema: str
    codec: str
    sync: bytes
    size: int
    """Size of the header in bytes."""
    is_julian: bool
    """Whether Spark wrote old dates and times in the Julian calendar."""


def avro_rows(spark: "SparkSession", files: Sequence[InputFile]) -> "DataFrame":
    """Return the records of Avro files, with the columns `FILE` and `POSITION`.

    The position is the number of the record in its file. Runs one Spark job, which reads the schema of each file.

    Raises:
        UsageError: if fastavro is missing, or for a type that a load does not read or that differs between files
        UnreadableInputError: for a file with an invalid header; from tasks for any invalid content
    """
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise UsageError(
            '--format avro needs the package fastavro. Nothing was appended. Run: pip install "spark-cas[avro]"'
        ) from error
    result = contents(spark, files)  # one listing by Spark for both jobs; it omits files that are empty by then
    schemas = _schemas(result, files)
    columns = merged_columns((path, parse_schema(text, path).spark) for text, path in schemas.items())
    require_free_names(columns.names)
    target = arrow_type(columns)
    numbers = FileNumbers(files)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        record_of = cache(parse_schema)
        for batch in batches:
            for path, content in zip(batch["path"].to_pylist(), batch["content"], strict=True):
                data = content.as_py()
                index = numbers.of(path, len(data))
                part = Part(path, index)
                header = read_header(part, data)
                if header.schema not in schemas:
                    raise part.error("the schema of the file changed during the load", "Run the load again")
                first = 0
                record = record_of(header.schema, "", is_julian=header.is_julian)
                for values in read_records(part, data, header, record, target):
                    yield with_positions(pa.RecordBatch.from_struct_array(values), index, first)
                    first += len(values)

    return result.select("path", "content").mapInArrow(read, with_position(columns))


def read_header(part: Part, data: bytes) -> Header:
    """Return the header of a file from its first bytes. Raises UnreadableInputError."""
    from fastavro import schemaless_reader

    if not data.startswith(_MAGIC):
        raise part.error("the file is not an Avro file: it does not begin with the bytes Obj 01", _FIX)
    content = BytesIO(data)
    content.seek(len(_MAGIC))
    try:
        # Decode pairs, because fastavro keeps only the last of two entries with the same key.
        fields = [{"name": "key", "type": "string"}, {"name": "value", "type": "bytes"}]
        pair = {"type": "record", "name": "pair", "fields": fields}
        pairs: Any = schemaless_reader(content, {"type": "array", "items": pair}, None)
        entries = {each["key"]: each["value"] for each in pairs}
        schema = entries["avro.schema"].decode()
        codec = entries.get("avro.codec", b"null").decode()
    except _INVALID as error:
        raise part.error("the header of the Avro file is cut or invalid, or has no schema", _FIX) from error
    sync = content.read(_SYNC_BYTES)
    if len(sync) < _SYNC_BYTES or len(entries) < len(pairs):
        raise part.error("the header of the Avro file is cut or invalid", _FIX)
    if codec not in _CODECS:
        known = ", ".join(_CODECS)
        raise part.error(
            f"the Avro file has the codec {codec!r}, and a load reads {known}", "Write it with one of these"
        )
    is_julian = _JULIAN in entries or entries.get(_SPARK_VERSION, b"3") < b"3"
    return Header(schema, codec, sync, content.tell(), is_julian)


def read_records(
    part: Part, data: bytes, header: Header, record: AvroType, target: pa.DataType
) -> Iterator[pa.StructArray]:
    """Return the records of a file in bounded arrays of a type. Raises UnreadableInputError.

    A field of the type that the record lacks is null.
    """
    from fastavro import parse_schema, schemaless_reader

    def converted() -> pa.StructArray:
        try:
            return pa.array(map(record.convert, rows), target)
        except _INVALID as error:
            first, last = total + 1, total + len(rows)
            raise part.error(f"records {first} to {last} of the Avro file: {error}", _FIX) from error

    # Parse a copy, because fastavro marks a schema that it has parsed.
    schema = parse_schema(json.loads(json.dumps(record.raw)))
    rows: list[Any] = []
    size = total = 0
    for number, (count, block) in enumerate(_blocks(part, data, header), 1):
        content = BytesIO(block)
        for _ in range(count):
            begin = content.tell()
            try:
                rows.append(schemaless_reader(content, schema, None))
            except _INVALID as error:
                raise part.error(
                    f"record {total + len(rows) + 1} in block {number} of the Avro file is cut or invalid", _FIX
                ) from error
            length = content.tell() - begin
            if length > _MOST_RECORD_BYTES:
                raise part.error(f"an Avro record has {length} bytes, and a load reads up to 1 GiB", "Split it")
            size += length
            if len(rows) >= _MOST_ROWS or size >= _BATCH_BYTES:
                yield converted()
                total += len(rows)
                rows, size = [], 0
        if content.tell() != len(block):
            raise part.error(
                f"block {number} of the Avro file has {len(block) - content.tell()} bytes after its last record", _FIX
            )
    if rows:
        yield converted()


def _schemas(result: "DataFrame", files: Sequence[InputFile]) -> dict[str, str]:
    """Return the schemas in the order of the first file that has each, with the path of this file."""
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
    if missing := set(range(len(files))).difference(*(row.files for row in rows)):
        raise Part(files[min(missing)].path).error(
            "the file has 0 bytes, so it is no Avro file, or it was removed",
            "Write it again, or remove it from the input",
        )
    return {row.schema: files[row.files[0]].path for row in rows}


def _blocks(part: Part, data: bytes, header: Header) -> Iterator[tuple[int, bytes]]:
    """Return the record count and the decompressed bytes of each block."""
    from fastavro import schemaless_reader

    content = BytesIO(data)
    content.seek(header.size)
    number = 0
    while content.tell() < len(data):
        number += 1
        try:
            count: Any = schemaless_reader(content, "long", None)
            size: Any = schemaless_reader(content, "long", None)
        except _INVALID as error:
            raise part.error(f"the Avro file is cut in the head of block {number}", _FIX) from error
        if count < 0 or size < 0:
            raise part.error(f"block {number} of the Avro file has a negative size", _FIX)
        stored = content.read(size)
        sync = content.read(_SYNC_BYTES)
        if len(stored) < size or len(sync) < _SYNC_BYTES:
            raise part.error(f"the Avro file is cut in block {number}", _FIX)
        if sync != header.sync:
            raise part.error(f"the Avro file is corrupt: block {number} ends without the sync marker", _FIX)
        try:
            block = _CODECS[header.codec](stored)
        except (*_INVALID, OSError, zlib.error, lzma.LZMAError) as error:
            raise part.error(f"block {number} of the Avro file is no valid {header.codec} data", _FIX) from error
        yield count, block


def _decompressed(
    decompressor: "bz2.BZ2Decompressor | lzma.LZMADecompressor | zlib._Decompress", stored: bytes
) -> bytes:
    """Decompress one whole stream. Raises ValueError if it is cut, or if bytes follow it.

    After deflate data, fastavro and Avro's Python library leave the first bytes of the checksum that zlib adds.
    """
    block = decompressor.decompress(stored)
    if not decompressor.eof or not zlib.adler32(block).to_bytes(4, "big").startswith(decompressor.unused_data):
        raise ValueError("the compressed data is cut, or bytes follow it")
    return block


def _snappy(stored: bytes) -> bytes:
    """Decompress a block that ends with the checksum of its bytes."""
    size = 0
    for at, byte in enumerate(stored[:5]):  # snappy data begins with the length, 7 bits a byte
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:  # noqa: PLR2004 - the last byte of the length
            break
    if size > len(stored) * _MOST_SNAPPY_RATIO:
        raise ValueError("the length is wrong")
    block: bytes = pa.decompress(stored[:-_CRC_BYTES], decompressed_size=size, codec="snappy", asbytes=True)
    if zlib.crc32(block) != int.from_bytes(stored[-_CRC_BYTES:], "big"):
        raise ValueError("the checksum differs")
    return block


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda stored: _decompressed(zlib.decompressobj(-zlib.MAX_WBITS), stored),
    "snappy": _snappy,
    "zstandard": lambda stored: pa.CompressedInputStream(pa.BufferReader(stored), "zstd").read(),
    "bzip2": lambda stored: _decompressed(bz2.BZ2Decompressor(), stored),
    "xz": lambda stored: _decompressed(lzma.LZMADecompressor(), stored),
}
