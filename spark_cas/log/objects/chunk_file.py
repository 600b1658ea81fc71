"""A chunk as a file: plain Parquet that any engine reads, with a header and a checksum in its metadata.

The checksum (xxh3_128) covers every byte of the file but its own 32 digits, so a torn or flipped file is an
error and never rows. The header carries a checksum of its own, so that it can be read alone from the end.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from spark_cas.core.columns import bytes_of
from spark_cas.core.errors import ChunkDamagedError, FormatError
from spark_cas.core.plan import Progress
from spark_cas.core.plan_json import progress_from_fields
from spark_cas.core.records import RECORDS
from spark_cas.log.objects.documents import FORMAT_VERSION

HEADER_BYTES = 16 * 1024
"""A chunk's footer, header included, fits into this many bytes."""

MAX_CHUNK_BYTES = 64 * 1024 * 1024
"""Creating is one request, and its whole body is in memory."""

_GROUPED_VERSION = 2
"""The format of chunks of a group, of which earlier versions know nothing: they must not take them for rows."""

_HEADER = "spark_cas.header"
_CHECKSUM = "spark_cas.checksum"
_MARK = b"xxh3_128:"
_BLANK = b"0" * 32

_CODEC = "snappy"
_SAMPLES = 4
_SAMPLE_BYTES = 64 * 1024
"""What the codec looks at at a time: it finds nothing that repeats from further away."""

_HEADERS = "headers.list.element"
_COMPRESSION = dict.fromkeys(("key", f"{_HEADERS}.key", f"{_HEADERS}.value", "timestamp", "offset"), _CODEC)
"""By column as Parquet names it. Of values it depends."""


@dataclass(frozen=True, slots=True)
class ChunkId:
    """Names one chunk and its very content."""

    base_offset: int
    checksum: str


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """What a chunk says of itself."""

    log_id: str
    partition: int
    base_offset: int
    end_offset: int
    write_id: str
    """Unique to one call of append: tells an own write from another's."""
    layout_epoch: int
    previous: ChunkId | None
    """The chunk that this one was appended after; None at the very start of the partition."""
    progress: Progress | None
    """The ledger entry of the job that appended. None of a control chunk, which holds no record and one offset, and
    of a chunk whose group was aborted: its offsets hold none."""
    group: str = ""
    """The group that decides whether it is in the log (`spark_cas.core.group`); empty where it is by itself."""
    decide_by_ms: int = 0
    """From then on, milliseconds since 1970, the group may be aborted by who finds it in the way."""

    @property
    def job(self) -> str | None:
        """The job that appended."""
        return self.progress.job if self.progress else None


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk that is in the store."""

    header: ChunkHeader
    checksum: str

    @property
    def id(self) -> ChunkId:
        """How the next chunk names this one."""
        return ChunkId(self.header.base_offset, self.checksum)


def encode(header: ChunkHeader, records: pa.Table) -> tuple[memoryview, StoredChunk]:
    """A chunk's bytes, and what it will be once stored. ``records`` is in `RECORDS`."""
    offsets = pa.array(np.arange(header.base_offset, header.base_offset + records.num_rows, dtype=np.int64))
    table = records.append_column("offset", offsets)
    text = json.dumps(_fields(header), sort_keys=True, separators=(",", ":"))
    sink = pa.BufferOutputStream()
    # Statistics over keys and values would cost time and help no reader of a log.
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression={**_COMPRESSION, "value": _CODEC if _shrinks(records.column("value")) else "none"},
        store_schema=False,
        write_statistics=["offset", "timestamp"],
        use_dictionary=["key"],
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
        msg = "the header of a chunk does not fit into its footer: the name of the task is too long"
        raise ValueError(msg)
    at = _checksum_at(data)
    checksum = _checksum_around(data, at)
    data[at : at + len(_BLANK)] = checksum.encode()
    return data, StoredChunk(header, checksum)


def _shrinks(values: pa.ChunkedArray) -> bool:
    """Whether compressed values are smaller by more than an eighth, as far as a sample tells.

    Others are not worth it: to compress and to expand them again takes most of what a write and a read take here.
    """
    chunks = [bytes_of(chunk) for chunk in values.chunks]
    pieces = [chunk[at : at + _SAMPLE_BYTES] for chunk in chunks for at in range(0, len(chunk), _SAMPLE_BYTES)]
    samples = pieces[:: max(1, len(pieces) // _SAMPLES)]
    size = sum(map(len, samples))
    return sum(len(pa.compress(each, _CODEC)) for each in samples) < size - size // 8


def decode_header(end: memoryview, what: str) -> StoredChunk:
    """Read a chunk's header from the last `HEADER_BYTES` of its file, or from all of it.

    Raises ChunkDamagedError, FormatError. ``what`` names the chunk in the error.
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(end))).metadata
        checksum, text = metadata[_HEADER.encode()].decode().split(" ", 1)
        stored = metadata[_CHECKSUM.encode()].removeprefix(_MARK).decode()
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        raise _damaged(what, "its footer cannot be read") from None
    if checksum != xxhash.xxh3_64_hexdigest(text.encode()):
        raise _damaged(what, "the checksum of its header does not fit")
    return StoredChunk(_header(json.loads(text), what), stored)


def newest_ms(end: memoryview) -> int | None:
    """The highest timestamp of a chunk's records, from the end of its file that `decode_header` has read; or None."""
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(end)))
    if metadata.num_rows == 0:
        return None
    group = metadata.row_group(0)
    columns = (group.column(at) for at in range(group.num_columns))
    newest: int = next(each.statistics.max_raw for each in columns if each.path_in_schema == "timestamp")
    return newest


def decode(data: memoryview, what: str, columns: tuple[str, ...]) -> tuple[StoredChunk, Iterator[pa.RecordBatch]]:
    """Check a whole chunk and open its records, in ``columns`` of `RECORDS`. Raises before any record is given.

    Raises ChunkDamagedError, FormatError. ``what`` names the chunk in the error.
    """
    stored = decode_header(data, what)
    if _checksum_around(data, _checksum_at(data)) != stored.checksum:
        raise _damaged(what, "its checksum does not fit its bytes")
    return stored, _batches(data, columns)


_BATCH_ROWS = 8_000
"""What is decoded stays in the cache of a core until it is handed on."""


def _batches(data: memoryview, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    schema = pa.schema([RECORDS.field(name) for name in columns])
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns) or ["offset"], use_threads=False):
        chosen = batch.select(list(columns))
        # A cast to no columns would forget how many rows there are.
        yield chosen.cast(schema) if columns else chosen


def _checksum_at(data: memoryview) -> int:
    """Where the digits of a file's checksum begin."""
    footer = bytes(data[-HEADER_BYTES:])
    return len(data) - len(footer) + footer.rfind(_MARK) + len(_MARK)


def _checksum_around(data: memoryview, at: int) -> str:
    """The checksum of a file as if its own digits, which lie ``at``, were zeros."""
    hasher = xxhash.xxh3_128()
    hasher.update(data[:at])
    hasher.update(_BLANK)
    hasher.update(data[at + len(_BLANK) :])
    return hasher.hexdigest()


def _fields(header: ChunkHeader) -> dict[str, Any]:
    """What versions before groups read too, unless it is of a group."""
    fields = asdict(header)
    if header.group:
        return {"format": _GROUPED_VERSION, **fields}
    del fields["group"], fields["decide_by_ms"]
    return {"format": FORMAT_VERSION, **fields}


def _header(fields: dict[str, Any], what: str) -> ChunkHeader:
    version = fields.pop("format", None)
    if version not in (FORMAT_VERSION, _GROUPED_VERSION):
        raise FormatError(
            f"{what} has format version {version}, and this spark_cas reads versions up to {_GROUPED_VERSION}. "
            f"Use the version of spark_cas that wrote it, or a newer one."
        )
    previous = fields.pop("previous")
    progress = fields.pop("progress")
    return ChunkHeader(
        previous=ChunkId(**previous) if previous else None,
        progress=progress_from_fields(progress) if progress else None,
        **fields,
    )


def _damaged(what: str, found: str) -> ChunkDamagedError:
    return ChunkDamagedError(
        f"{what}: {found}. Its bytes were torn or changed after they were acknowledged. Nothing of it was "
        f"read. Restore the file from a copy; the log cannot be read past it until then."
    )
