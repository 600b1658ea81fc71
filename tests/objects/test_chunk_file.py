"""A chunk as a file: it contains the written records, any damage raises an error, and any engine can read it."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import ChunkDamagedError, FormatError
from spark_cas.core.plan import Progress
from spark_cas.core.records import RECORDS
from spark_cas.log.objects import chunk_file
from spark_cas.log.objects.chunk_file import HEADER_BYTES, ChunkHeader, ChunkId, decode, decode_header, encode
from tests.objects.places import local_log
from tests.support.strategies import record_batches
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of

ALL = tuple(RECORDS.names)
OFFSETS = st.integers(0, 2**62)
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)


def header_of(base: int, rows: int, job: str = "job", task: str = "run/0") -> ChunkHeader:
    progress = Progress(job, 3, rows, "d" * 32, base, base + rows, 1, 0, complete=False, committed_at_ms=5, task=task)
    previous = ChunkId(base - 1, "c" * 32) if base else None
    return ChunkHeader("log", 3, base, base + rows, "w" * 32, 0, previous, progress)


def small() -> tuple[memoryview, ChunkHeader]:
    header = header_of(7, 3)
    return encode(header, table_of("abc"))[0], header


@given(record_batches(min_rows=1), OFFSETS, st.sets(st.sampled_from(ALL)))
def test_records_survive_a_round_trip(records, base, columns):
    header = header_of(base, records.num_rows)
    data, stored = encode(header, pa.Table.from_batches([records], RECORDS))
    assert stored.header == header
    chosen = tuple(name for name in ALL if name in columns)
    found, batches = decode(data, "it", chosen)
    assert found == stored == decode_header(data[-HEADER_BYTES:], "it")
    read = list(batches)
    assert sum(batch.num_rows for batch in read) == records.num_rows
    assert all(batch.schema == pa.schema([RECORDS.field(name) for name in chosen]) for batch in read)
    rows = [row for batch in read for row in batch.cast(times_as_numbers(batch.schema)).to_pylist()]
    expected = records.cast(times_as_numbers(RECORDS)).select(list(chosen)).to_pylist()
    assert rows == expected or not chosen


TEXTS = [b'{"id": %d, "text": "much of it is alike"}' % each for each in range(2_000)]
HASHES = [xxhash.xxh3_128_hexdigest(text).encode() for text in TEXTS]


def codecs(*batches: list[bytes]) -> dict[str, str]:
    """Return the codec of each column in a chunk with these values."""
    header = header_of(0, sum(map(len, batches)))
    column = pa.chunked_array([pa.array(values, pa.binary()) for values in batches])
    empty = [pa.nulls(len(column), RECORDS.field(name).type) for name in ("headers", "timestamp")]
    table = pa.table([column, column, *empty], schema=RECORDS)
    data, _ = encode(header, table)
    assert pa.Table.from_batches(decode(data, "it", ALL)[1]) == table
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {each.path_in_schema: each.compression for each in columns}


def test_values_are_compressed_where_that_makes_them_smaller():
    assert set(codecs(TEXTS).values()) == {"SNAPPY"}
    found = codecs(HASHES)
    assert found.pop("value") == "UNCOMPRESSED"
    assert set(found.values()) == {"SNAPPY"}


def test_not_the_first_values_alone_say_whether_that_makes_them_smaller():
    assert codecs(HASHES, *[TEXTS] * 7)["value"] == "SNAPPY"
    assert codecs([*HASHES, *TEXTS * 7])["value"] == "SNAPPY"


def times_as_numbers(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, pa.int64()) if each.name == "timestamp" else each for each in schema])


def test_many_rows_are_read_in_several_batches():
    rows = 3 * chunk_file._BATCH_ROWS + 1
    data, _ = encode(header_of(0, rows), table_of(str(row) for row in range(rows)))
    _, batches = decode(data, "it", ("value",))
    read = list(batches)
    assert len(read) > 1
    assert [value for batch in read for value in batch.column(0).to_pylist()] == [b"%d" % row for row in range(rows)]


def test_every_flipped_bit_is_an_error():
    data, _ = small()
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises((ChunkDamagedError, FormatError), match="the chunk"):
                decode(memoryview(flipped), "the chunk", ALL)


def test_every_torn_file_is_an_error():
    data, _ = small()
    for length in range(len(data)):
        for torn in (data[:length], data[len(data) - length :] if length else data[:0]):
            with pytest.raises(ChunkDamagedError, match=r"^\[CHUNK_DAMAGED\] the chunk"):
                decode(torn, "the chunk", ALL)
        zeroed = bytearray(data)
        zeroed[length:] = bytes(len(data) - length)
        with pytest.raises(ChunkDamagedError):
            decode(memoryview(zeroed), "the chunk", ALL)


def test_a_header_that_was_changed_is_never_believed():
    """The header is read alone, without the rows: it must not depend on the checksum over the whole file."""
    data, header = small()
    stored = decode_header(data, "it")
    for at in range(len(data)):
        for bit in (0, 3, 7):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            try:
                found = decode_header(memoryview(flipped), "it")
            except (ChunkDamagedError, FormatError):
                continue
            assert found.header == header
            # The checksum's digits are not part of the header. The chain and the checksum of the whole file protect
            # them.
            assert found == replace(stored, checksum=found.checksum)


LONGEST = 2**63 - 1


@pytest.mark.parametrize("rows", [1, 40_000])
def test_the_longest_header_fits_into_the_end_that_is_read(rows):
    """Use names of maximum length, maximum numbers, and columns that use all encodings."""
    job = "J" * 200
    task = f"{'t' * 200}/{LONGEST}"
    base = LONGEST - rows
    progress = Progress(
        job, 99_999, LONGEST, "d" * 32, LONGEST, LONGEST, LONGEST, LONGEST,
        complete=False, committed_at_ms=LONGEST, task=task,
    )  # fmt: skip
    header = ChunkHeader("l" * 32, 99_999, base, LONGEST, "w" * 32, LONGEST, ChunkId(LONGEST, "c" * 32), progress)
    records = pa.Table.from_pylist(
        [
            {
                "key": b"%d" % row,
                "value": b"%d" % row,
                "headers": [{"key": f"{row}", "value": b"v"}],
                "timestamp": row,
            }
            for row in range(rows)
        ],
        schema=RECORDS,
    )
    data, stored = encode(header, records)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    assert footer <= HEADER_BYTES // 2, "half of it is room to grow"
    assert decode_header(data[-HEADER_BYTES:], "it") == stored
    assert decode(data, "it", ALL)[0] == stored


@pytest.mark.parametrize("task", ["xxh3_128:" + "0" * 32, "x" * 2000, "ü" * 500])
def test_odd_task_names(task):
    data, stored = encode(header_of(0, 3, task=task), table_of("abc"))
    assert decode(data, "it", ALL)[0] == stored == decode_header(data[-HEADER_BYTES:], "it")


def test_a_header_that_does_not_fit_is_refused_before_it_is_stored():
    with pytest.raises(ValueError, match="task"):
        encode(header_of(0, 3, task="x" * HEADER_BYTES), table_of("abc"))


def test_a_newer_format_is_named(monkeypatch):
    monkeypatch.setattr(chunk_file, "FORMAT_VERSION", 3)
    data, _ = small()
    monkeypatch.undo()
    for read in (lambda: decode(data, "the chunk", ALL), lambda: decode_header(data, "the chunk")):
        with pytest.raises(FormatError, match=r"^\[FORMAT\] the chunk has format version 3.*newer"):
            read()


@pytest.mark.parametrize("metadata", [{}, {"spark_cas.header": "0 {}"}, {"spark_cas.header": "no"}])
def test_another_parquet_file_is_no_chunk(metadata):
    sink = pa.BufferOutputStream()
    pq.write_table(table_of("abc").replace_schema_metadata(metadata), sink)
    with pytest.raises(ChunkDamagedError):
        decode(memoryview(sink.getvalue()), "the chunk", ALL)


def test_the_checksum_covers_the_file_as_documented():
    """The check can therefore be implemented without this package."""
    data = bytes(small()[0])
    metadata = pq.read_metadata(pa.BufferReader(data)).metadata
    digits = metadata[b"spark_cas.checksum"].removeprefix(b"xxh3_128:")
    assert data.count(digits) == 1
    assert xxhash.xxh3_128_hexdigest(data.replace(digits, b"0" * 32)) == digits.decode()
    checksum, text = metadata[b"spark_cas.header"].split(b" ", 1)
    assert xxhash.xxh3_64_hexdigest(text) == checksum.decode()
    assert json.loads(text)["format"] == 1


def test_any_engine_reads_the_root_as_one_table(tmp_path):
    log = local_log(tmp_path / "log")
    log.create(3)
    writer = JobWriter(log, plan_of(log, "job"), 0)
    writer.must_append("a", "b")
    append_foreign(log, 2, "x", "y", "z")
    writer.must_append("c", complete=True)
    table = ds.dataset(
        tmp_path / "log", format="parquet", partitioning="hive", exclude_invalid_files=False
    ).to_table()
    assert set(table.column_names) == {*ALL, "offset", "partition"}
    assert table.schema.field("offset").type == pa.int64()
    assert table.schema.field("timestamp").type == RECORDS.field("timestamp").type
    table = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
    found = table.select(["partition", "offset", "value"]).to_pylist()
    assert [(row["partition"], row["offset"], row["value"]) for row in found] == [
        *((0, at, value) for at, value in enumerate([b"a", b"b", b"c"])),
        *((2, at, value) for at, value in enumerate([b"x", b"y", b"z"])),
    ]
    only = table.filter(pc.equal(table["partition"], 2))
    assert only.num_rows == 3
