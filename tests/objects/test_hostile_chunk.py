"""A chunk that another program wrote raises an error that names its file, and does not fill the reader's memory."""

import json
import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from spark_cas.core.errors import ChunkDamagedError, FormatError, RecordTooLargeError
from spark_cas.core.plan import Progress
from spark_cas.core.records import HEADERS, RECORDS
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.objects import chunk_file, documents, paths, store_replies
from spark_cas.log.objects.chunk_file import ChunkHeader, decode, decode_header, encode
from spark_cas.log.objects.store import RetryingStore, open_store
from spark_cas.log.spec import LogSpec
from tests.objects.places import local_log, memory_spec, reopened
from tests.support.planted_problems import END
from tests.support.writing import JobWriter, table_of

ALL = tuple(RECORDS.names)
MIB = 1024 * 1024


def header_of(rows, base=0):
    progress = Progress("job", 0, rows, "d" * 32, base, base + rows, 1, 0, False, 5, "run/0")
    return ChunkHeader("log", 0, base, base + rows, "w" * 32, 0, None, progress)


def forged(records, rows, *, header=None, rows_per_group=None, **options):
    """Return a chunk with valid checksums, as a program may write it that is not `encode`."""
    text = json.dumps(chunk_file._fields(header or header_of(rows)))
    table = records.append_column("offset", pa.array(range(records.num_rows), pa.int64()))
    options = {"compression": "snappy", "use_dictionary": False, "store_schema": False} | options
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=rows_per_group or table.num_rows)
        header = f"{xxhash.xxh3_64_hexdigest(text.encode())} {text}"
        checksum = (chunk_file._MARK + chunk_file._BLANK).decode()
        writer.add_key_value_metadata({"spark_cas.header": header, "spark_cas.checksum": checksum})
    data = memoryview(sink.getvalue()).cast("B")
    at = chunk_file._checksum_at(data)
    data[at : at + 32] = chunk_file._checksum_around(data, at).encode()
    return data


def records_of(rows, **columns):
    return pa.table([columns.get(each.name, pa.nulls(rows, each.type)) for each in RECORDS], schema=RECORDS)


def repeated(rows, size):
    """Return a column with one value in all rows, which takes no more memory than the value."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([b"x" * size]))


def with_repeated(column, rows, size):
    table = records_of(rows)
    return table.set_column(ALL.index(column), column, repeated(rows, size))


@pytest.fixture
def peak(monkeypatch):
    """Set small limits, and return a function for the peak of Arrow's memory in the test."""
    monkeypatch.setattr(chunk_file, "_MOST_DECODED_BYTES", 16 * MIB)
    monkeypatch.setattr(chunk_file, "_MOST_ENCODED_BYTES", 8 * MIB)
    monkeypatch.setattr(chunk_file, "_MOST_BATCH_BYTES", 4 * MIB)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    yield lambda: pool.max_memory() or 0
    pa.set_memory_pool(before)


def read_all(data):
    return sum(batch.num_rows for batch in decode(data, "the chunk", ALL)[1])


def test_a_forged_chunk_that_fits_is_read():
    """So that the other tests fail for the reason that they name."""
    assert read_all(forged(table_of("abc"), 3)) == 3
    assert read_all(forged(with_repeated("key", 100, 1000), 100, use_dictionary=["key"])) == 100


def test_values_that_inflate_are_rejected_before_they_are_read(peak):
    data = forged(records_of(64, value=pa.array([bytes(MIB)] * 64)), 64)
    written = peak()
    assert len(data) < 4 * MIB
    with pytest.raises(ChunkDamagedError, match=r"the chunk: it has \d+ bytes without compression"):
        read_all(data)
    assert peak() == written


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """The file of a chunk in a log, which is small and has 1088 MiB of values without compression."""
    root, rows = tmp_path_factory.mktemp("bomb") / "log", 17
    log = local_log(root)
    log.create(1)
    JobWriter(log, pin_plan(log, "job", END)).must_append(*"x" * rows)
    [file] = root.glob("partition=*/*.parquet")
    header = decode_header(memoryview(file.read_bytes()), "the chunk").header
    values = pa.chunked_array([pa.array([bytes(64 * MIB)])] * rows)
    records = records_of(rows).set_column(ALL.index("value"), "value", values)
    file.write_bytes(forged(records, rows, header=header, rows_per_group=1, compression="zstd"))
    assert file.stat().st_size < MIB
    return file


READ = "import sys, spark_cas\nwith spark_cas.open_log(sys.argv[1]) as log: [*log.read(0, log.bounds(0).range)]"
MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
"""Runs a program, and prints its most memory in KiB. Started by pytest, it would begin with the memory of pytest."""


@pytest.mark.parametrize(
    ("program", "code"),
    [(("-m", "spark_cas.cli", "read", "-f", r"%o\n"), 6), (("-c", READ), 1)],
    ids=["command line", "open_log"],
)
def test_a_program_names_the_file_of_a_bomb_within_bounded_memory(bomb, program, code):
    root = bomb.parents[1]
    command = [sys.executable, "-c", MEASURED, sys.executable, *program, str(root)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == code
    assert f"[CHUNK_DAMAGED] {bomb.relative_to(root)}" in ended.stderr, ended.stderr
    assert int(ended.stdout.splitlines()[-1]) < 512 * 1024


def with_headers(rows, headers):
    """Return rows of which the first has a number of null headers."""
    offsets = pa.array([0, *[headers] * rows], pa.int32())
    return records_of(rows, headers=pa.ListArray.from_arrays(offsets, pa.nulls(headers, HEADERS.value_type)))


@pytest.mark.parametrize("records", [with_headers(2, 600_000), table_of(["x" * 5 * MIB])], ids=["headers", "value"])
def test_a_chunk_that_readers_would_reject_is_not_encoded(peak, records):
    with pytest.raises(RecordTooLargeError):
        encode(header_of(records.num_rows), records)


@pytest.mark.parametrize("records", [with_headers(2, 300_000), table_of(["x" * 3 * MIB])], ids=["headers", "value"])
def test_a_chunk_just_below_the_limits_is_read(peak, records):
    data, _ = encode(header_of(records.num_rows), records)
    assert read_all(data) == records.num_rows


@pytest.mark.parametrize("rows", [1, 3])
def test_headers_that_fill_the_memory_are_rejected_before_they_are_read(peak, rows):
    assert read_all(forged(with_headers(rows, 100_000), rows)) == rows
    data = forged(with_headers(rows, 2_000_000), rows)
    written = peak()
    assert len(data) < 2_000
    for columns in (ALL, ("headers",)):
        with pytest.raises(ChunkDamagedError, match=r"the chunk: its headers have \d+ values"):
            [*decode(data, "the chunk", columns)[1]]
    assert peak() == written


def test_a_long_key_that_repeats_does_not_fill_the_memory(peak):
    data = forged(with_repeated("key", 100_000, MIB), 100_000, use_dictionary=["key"])
    assert len(data) < MIB
    with pytest.raises(ChunkDamagedError, match="the chunk: its records have more than"):
        read_all(data)
    assert peak() < 64 * MIB, "100 GB of keys"


def test_a_long_key_of_a_writer_is_read(peak):
    keys = [b"k" * MIB, *(b"%d" % each for each in range(20_000))]
    records = records_of(len(keys), key=pa.array(keys))
    data, _ = encode(header_of(len(keys)), records)
    batches = [*decode(data, "it", ALL)[1]]
    assert pa.Table.from_batches(batches).column("key").to_pylist() == keys
    assert batches[0].num_rows < chunk_file._BATCH_ROWS


@pytest.mark.parametrize("column", ["value", "timestamp"])
def test_only_keys_have_a_dictionary(column):
    records = table_of("abc") if column == "timestamp" else with_repeated(column, 3, MIB)
    with pytest.raises(ChunkDamagedError, match=f"the chunk: its column {column} has an encoding"):
        read_all(forged(records, 3, use_dictionary=[column]))


def test_values_that_share_prefixes_are_rejected():
    with pytest.raises(ChunkDamagedError, match="its column value has an encoding"):
        read_all(forged(table_of("abc"), 3, column_encoding={"value": "DELTA_BYTE_ARRAY"}))


class Opens:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["value", "further"])
def test_a_pickled_extension_type_is_rejected_and_runs_no_code(tmp_path, name):
    """Versions of pyarrow before 14 unpickled it when they read the schema."""
    marks = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Opens(tmp_path / "ran")),
    }
    records, values = table_of("abc"), pa.array([b"a", b"b", b"c"])
    field = pa.field(name, pa.binary(), metadata=marks)
    records = records.drop_columns([name] if name in records.column_names else []).append_column(field, values)
    data = forged(records, 3, store_schema=True)
    for read in (read_all, lambda data: decode_header(data, "the chunk")):
        with pytest.raises(ChunkDamagedError, match="the chunk: it has a schema of Arrow"):
            read(data)
    assert not (tmp_path / "ran").exists()
    pickle.loads(marks[b"ARROW:extension:metadata"]).close()  # noqa: S301 - our own bytes
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("rows", [2, 4, 2**40])
def test_a_chunk_has_the_rows_of_its_header(rows):
    with pytest.raises(ChunkDamagedError, match=f"the chunk: it has 3 rows, and according to its header {rows}"):
        read_all(forged(table_of("abc"), rows))


@pytest.mark.parametrize(
    "forge",
    [
        lambda fields: fields.pop("write_id"),
        lambda fields: fields.update(end_offset="9"),
        lambda fields: fields.update(end_offset=fields["base_offset"]),
        lambda fields: fields.update(base_offset=-1),
        lambda fields: fields.update(previous=5),
        lambda fields: fields["progress"].update(rows=None),
        lambda fields: fields.update(progress=[1]),
    ],
)
def test_a_forged_header_names_the_chunk(monkeypatch, forge):
    fields = chunk_file._fields(header_of(3))
    forge(fields)
    monkeypatch.setattr(chunk_file, "_fields", lambda _: fields)
    data = forged(table_of("abc"), 3)
    for read in (lambda: decode_header(data, "the chunk"), lambda: decode(data, "the chunk", ALL)):
        with pytest.raises(FormatError, match="the header of the chunk"):
            read()


@pytest.mark.parametrize("partitions", [10**12, 0, -1, "4", True, None])
def test_a_forged_layout_is_an_error(tmp_path, partitions):
    log = local_log(tmp_path / "log")
    layout = log.create(1)
    file = tmp_path / "log" / paths.layout(layout.epoch)
    file.write_bytes(documents.encode({"log_id": layout.log_id, "epoch": layout.epoch, "partitions": partitions}))
    with pytest.raises(FormatError, match=paths.layout(layout.epoch)):
        reopened(log).layout()


def test_a_huge_object_is_rejected_before_it_is_read(tmp_path):
    log = local_log(tmp_path / "log")
    log.create(1)
    file = tmp_path / "log" / paths.layout(log.layout().epoch)
    with file.open("r+b") as opened:
        opened.truncate(sys.maxsize // 2**20)  # 8 TiB without blocks on the disk
    with pytest.raises(FormatError, match=str(file)):
        reopened(log).layout()


def test_a_huge_object_of_a_store_is_rejected(monkeypatch):
    store = open_store(memory_spec())
    store.create("a", b"12345")
    assert bytes(store.get("a") or b"") == b"12345"
    monkeypatch.setattr(store_replies, "MAX_OBJECT_BYTES", 4)
    with pytest.raises(FormatError, match=r"memory:///.*a has 5 bytes"):
        store.get("a")
    assert bytes(store.get_end("a", 2) or b"") == b"45"


@pytest.mark.parametrize("place", ["memory", "directory"])
def test_an_object_that_readers_reject_is_not_written(monkeypatch, tmp_path, place):
    spec = memory_spec() if place == "memory" else LogSpec.parse(str(tmp_path))
    store = RetryingStore(open_store(spec), spec)
    monkeypatch.setattr(store_replies, "MAX_OBJECT_BYTES", 4)
    assert store.put_once("a", b"1234") == store.get("a")
    with pytest.raises(RecordTooLargeError, match="b has 5 bytes"):
        store.put_once("b", b"12345")
    assert store.get("b") is None
