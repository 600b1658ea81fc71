"""Chunk files: plain Parquet that any engine reads, with a header and a checksum in the file metadata.

The checksum (xxh3_128) covers each byte of the file except its own 32 digits. A torn or changed file therefore raises
an error and never returns wrong rows. The header has its own checksum, so a reader can verify it from the end of the
file alone.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from spark_cas.core.errors import ChunkDamagedError, FormatError, RecordTooLargeError
from spark_cas.core.plan import Progress
from spark_cas.core.recorded_fields import from_fields, in_format
from spark_cas.core.records import RECORDS, bytes_of, lengths_of
from spark_cas.log.objects.documents import FORMAT_VERSION

HEADER_BYTES = 16 * 1024
"""Maximum size of a chunk's footer, including the header, in bytes."""

MAX_CHUNK_BYTES = 64 * 1024 * 1024
"""Maximum size of a chunk file in bytes. One request uploads the whole file from memory."""

_GROUPED_VERSION = 2
"""Format version of chunks that belong to a group. Earlier versions reject it instead of reading uncommitted rows."""

_HEADER = "spark_cas.header"
_CHECKSUM = "spark_cas.checksum"
_ARROW_SCHEMA = b"ARROW:schema"
_MARK = b"xxh3_128:"
_BLANK = b"0" * 32

_CODEC = "snappy"
_SAMPLES = 4
_SAMPLE_BYTES = 64 * 1024
"""Sample size in bytes. It is the window of the codec, which finds no repetition over a longer distance."""

_HEADERS = "headers.list.element"
_COMPRESSION = dict.fromkeys(("key", f"{_HEADERS}.key", f"{_HEADERS}.value", "timestamp", "offset"), _CODEC)
"""Codec per Parquet column. The value column uses it only if `_shrinks` returns True."""

_DICTIONARY_BYTES = 128 * 1024
"""The size at which Parquet stops collecting different keys. A read decodes all of them first (`_batch_rows`), and a
larger dictionary takes longer to build than it saves."""


@dataclass(frozen=True, slots=True)
class ChunkId:
    """Identify a chunk by its offset and content."""

    base_offset: int
    checksum: str


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """Metadata of a chunk."""

    log_id: str
    partition: int
    base_offset: int
    end_offset: int
    write_id: str
    """Unique per attempt to append. It distinguishes an own chunk from the chunk of another writer."""
    layout_epoch: int
    previous: ChunkId | None
    """The preceding chunk; None for the first chunk of the partition."""
    progress: Progress | None
    """Ledger entry of the job that appended the chunk.

    None for a control chunk, which occupies one offset without a record. Also None for a chunk of an aborted group.
    """
    group: str = ""
    """The commit group of the chunk (`spark_cas.core.group`); empty if the chunk commits by itself."""
    decide_by_ms: int = 0
    """Time in milliseconds since 1970. After it, any writer that this group blocks may abort the group."""

    @property
    def job(self) -> str | None:
        return self.progress.job if self.progress else None


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """Header and checksum of a chunk in the store."""

    header: ChunkHeader
    checksum: str

    @property
    def id(self) -> ChunkId:
        """The id under which the next chunk refers to this one."""
        return ChunkId(self.header.base_offset, self.checksum)

    @property
    def is_void(self) -> bool:
        """Whether the offsets of the chunk hold no record."""
        return self.header.progress is None


def encode(header: ChunkHeader, records: pa.Table) -> tuple[memoryview, StoredChunk]:
    """Encode records as a chunk file. Return the bytes of the file, and its header with the checksum.

    Raises:
        RecordTooLargeError: if readers would reject the chunk because of the memory of its records
        ValueError: if the footer exceeds `HEADER_BYTES`
    """
    _require_readable(records)
    offsets = pa.array(np.arange(header.base_offset, header.base_offset + records.num_rows, dtype=np.int64))
    table = records.append_column("offset", offsets)
    text = json.dumps(_fields(header), sort_keys=True, separators=(",", ":"))
    sink = pa.BufferOutputStream()
    # Statistics of keys and values take time and do not help readers of a log.
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression={**_COMPRESSION, "value": _CODEC if _shrinks(records.column("value")) else "none"},
        store_schema=False,
        write_statistics=["offset", "timestamp"],
        use_dictionary=["key"],
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata(
            {
                _HEADER: f"{xxhash.xxh3_64_hexdigest(text.encode())} {text}",
                _CHECKSUM: (_MARK + _BLANK).decode(),
            }
        )
    data = memoryview(sink.getvalue()).cast("B")
    if int.from_bytes(data[-8:-4], "little") + 8 > HEADER_BYTES:
        raise ValueError("the header of a chunk does not fit into its footer: the name of the task is too long")
    at = _checksum_at(data)
    checksum = _checksum_around(data, at)
    data[at : at + len(_BLANK)] = checksum.encode()
    return data, StoredChunk(header, checksum)


def _require_readable(records: pa.Table) -> None:
    """Reject records that fill more memory than a reader allows (`_require_plausible`)."""
    headers = sum(len(chunk.flatten()) for chunk in records.column("headers").chunks)
    size = max(records.nbytes, 2 * headers * _HEADER_VALUE_BYTES)
    if size > _MOST_ENCODED_BYTES:
        raise RecordTooLargeError(
            f"a chunk of {records.num_rows} records with {headers} headers fills {size} bytes of memory, and the "
            f"maximum is {_MOST_ENCODED_BYTES}. None of its records was appended. Use fewer records per chunk, or "
            f"fewer headers."
        )


def _shrinks(values: pa.ChunkedArray) -> bool:
    """Estimate from a sample whether compression saves more than an eighth of the size of the values.

    Smaller savings do not justify the CPU time for compression and decompression.
    """
    chunks = [bytes_of(chunk) for chunk in values.chunks]
    pieces = [chunk[at : at + _SAMPLE_BYTES] for chunk in chunks for at in range(0, len(chunk), _SAMPLE_BYTES)]
    samples = pieces[:: max(1, len(pieces) // _SAMPLES)]
    size = sum(map(len, samples))
    return sum(len(pa.compress(each, _CODEC)) for each in samples) < size - size // 8


def decode_header(end: memoryview, subject: str) -> StoredChunk:
    """Read the header of a chunk from the last `HEADER_BYTES` of its file, or from the whole file.

    Raises:
        ChunkDamagedError: if the footer or the checksum of the header is invalid
        FormatError: if this version does not support the format of the chunk
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(end))).metadata
        checksum, text = metadata[_HEADER.encode()].decode().split(" ", 1)
        stored = metadata[_CHECKSUM.encode()].removeprefix(_MARK).decode()
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        raise _damaged(subject, "its footer cannot be read") from None
    if checksum != xxhash.xxh3_64_hexdigest(text.encode()):
        raise _damaged(subject, "the checksum of its header does not fit")
    if _ARROW_SCHEMA in metadata:
        # It may name extension types, whose classes would interpret the bytes of the file.
        raise _forged(subject, "it has a schema of Arrow, which no writer stores")
    with in_format(f"the header of {subject}"):
        return StoredChunk(_header(json.loads(text), subject), stored)


def newest_ms(end: memoryview) -> int | None:
    """Return the highest record timestamp of a chunk in milliseconds, from the end of its file as `decode_header`.

    The result is None if the chunk has no records.
    """
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(end)))
    if metadata.num_rows == 0:
        return None
    newest: int = next(each.statistics.max_raw for each in _columns(metadata) if each.path_in_schema == "timestamp")
    return newest


def decode(data: memoryview, subject: str, columns: tuple[str, ...]) -> tuple[StoredChunk, Iterator[pa.RecordBatch]]:
    """Verify a whole chunk. Return its header, and its records in these columns of `RECORDS`.

    Raises:
        ChunkDamagedError: if a checksum does not match; raised before the first record is returned
        FormatError: if this version does not support the format of the chunk
    """
    stored = decode_header(data, subject)
    if _checksum_around(data, _checksum_at(data)) != stored.checksum:
        raise _damaged(subject, "its checksum does not fit its bytes")
    file = _file(data)
    _require_plausible(file.metadata, stored.header, subject)
    return stored, _batches(file, columns, _batch_rows(data, file.metadata, columns), subject)


_BATCH_ROWS = 8_000
"""Small batches stay in the CPU cache while the caller processes them."""

_MOST_DECODED_BYTES = 1024 * 1024 * 1024
"""The maximum memory of a chunk's records. A writer appends at most `MAX_CHUNK_BYTES` of keys, values and headers."""
_MOST_ENCODED_BYTES = _MOST_DECODED_BYTES // 2
"""Half of it, because the offsets and the lengths of values that a reader adds need memory too."""
_MOST_BATCH_BYTES = _MOST_DECODED_BYTES // 4
_HEADER_VALUE_BYTES = 8
"""Minimum memory of a header's key or value while Arrow reads it. A list of nulls has almost no bytes in a file."""

_ENCODINGS = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED", "DELTA_BINARY_PACKED"})
"""The encodings that `encode` uses. Others may repeat parts of values."""
_WITH_DICTIONARY = "key"
"""The only column in which a few bytes may represent many values."""


def _require_plausible(metadata: pq.FileMetaData, header: ChunkHeader, subject: str) -> None:
    """Check that a chunk has the rows of its header, and that a few bytes cannot fill the memory of a reader."""
    rows = 0 if header.progress is None else header.end_offset - header.base_offset
    if metadata.num_rows != rows:
        raise _forged(subject, f"it has {metadata.num_rows} rows, and according to its header {rows}")
    columns = _columns(metadata)
    size = sum(each.total_uncompressed_size for each in columns)
    if size > _MOST_DECODED_BYTES:
        raise _forged(subject, f"it has {size} bytes without compression, more than {_MOST_DECODED_BYTES}")
    # Only headers have more than one value per row. Arrow reads all headers of a row at once.
    repeated = sum(each.num_values for each in columns) - metadata.num_rows * metadata.num_columns
    if repeated * _HEADER_VALUE_BYTES > _MOST_DECODED_BYTES:
        raise _forged(subject, f"its headers have {repeated} values, too many for {_MOST_DECODED_BYTES} bytes")
    for each in columns:
        dictionary = each.has_dictionary_page and each.path_in_schema != _WITH_DICTIONARY
        if dictionary or not _ENCODINGS.issuperset(each.encodings):
            raise _forged(subject, f"its column {each.path_in_schema} has an encoding that no writer uses")


def _batch_rows(data: memoryview, metadata: pq.FileMetaData, columns: tuple[str, ...]) -> int:
    """Return how many rows to read at once. If the dictionary of keys has a long one, all rows may repeat it."""
    size = sum(each.total_uncompressed_size for each in _columns(metadata) if each.path_in_schema == _WITH_DICTIONARY)
    if _WITH_DICTIONARY not in columns or size * _BATCH_ROWS <= _MOST_BATCH_BYTES:
        return _BATCH_ROWS
    # The first row in this form has the whole dictionary of its row group.
    file = _file(data, metadata, read_dictionary=[_WITH_DICTIONARY])
    longest = 1
    for group in range(metadata.num_row_groups):
        for row in file.iter_batches(1, row_groups=[group], columns=[_WITH_DICTIONARY], use_threads=False):
            longest = max(longest, lengths_of(row.column(0).dictionary, of_null=0).max(initial=0))
            break
    return int(max(1, min(_BATCH_ROWS, _MOST_BATCH_BYTES // longest)))


def _columns(metadata: pq.FileMetaData) -> list[pq.ColumnChunkMetaData]:
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    return [group.column(at) for group in groups for at in range(group.num_columns)]


def _file(data: memoryview, metadata: pq.FileMetaData | None = None, **options: Any) -> pq.ParquetFile:  # noqa: ANN401
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), metadata=metadata, **options)


def _batches(file: pq.ParquetFile, columns: tuple[str, ...], rows: int, subject: str) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([RECORDS.field(name) for name in columns])
    size = 0
    for batch in file.iter_batches(batch_size=rows, columns=list(columns) or ["offset"], use_threads=False):
        size += batch.nbytes
        if size > _MOST_DECODED_BYTES:
            raise _forged(subject, f"its records have more than {_MOST_DECODED_BYTES} bytes")
        chosen = batch.select(list(columns))
        # A cast to zero columns would lose the row count.
        yield chosen.cast(schema) if columns else chosen


def _checksum_at(data: memoryview) -> int:
    footer = bytes(data[-HEADER_BYTES:])
    return len(data) - len(footer) + footer.rfind(_MARK) + len(_MARK)


def _checksum_around(data: memoryview, at: int) -> str:
    """Return the checksum of a file, with its own digits at position ``at`` replaced by zeros."""
    hasher = xxhash.xxh3_128()
    hasher.update(data[:at])
    hasher.update(_BLANK)
    hasher.update(data[at + len(_BLANK) :])
    return hasher.hexdigest()


def _fields(header: ChunkHeader) -> dict[str, Any]:
    """Return the fields of a header. Without a group, versions before commit groups can read them."""
    fields = asdict(header)
    if header.group:
        return {"format": _GROUPED_VERSION, **fields}
    del fields["group"], fields["decide_by_ms"]
    return {"format": FORMAT_VERSION, **fields}


def _header(fields: dict[str, Any], subject: str) -> ChunkHeader:
    version = fields.pop("format", None)
    if version not in (FORMAT_VERSION, _GROUPED_VERSION):
        raise FormatError(
            f"{subject} has format version {version}, and this spark_cas reads versions up to {_GROUPED_VERSION}. "
            f"Use the version of spark_cas that wrote it, or a newer one."
        )
    header = from_fields(ChunkHeader, fields)
    if not 0 <= header.base_offset < header.end_offset:
        raise ValueError("expected a chunk with offsets")
    return header


def _forged(subject: str, reason: str) -> ChunkDamagedError:
    return ChunkDamagedError(
        f"{subject}: {reason}, so another program wrote it, or changed it. Restore the file from a copy, and check "
        f"which users may write to the log."
    )


def _damaged(subject: str, result: str) -> ChunkDamagedError:
    return ChunkDamagedError(
        f"{subject}: {result}. Its bytes were torn or changed after they were acknowledged. Nothing of it was "
        f"read. Restore the file from a copy; the log cannot be read past it until then."
    )
