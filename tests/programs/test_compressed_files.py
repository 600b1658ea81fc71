"""Loads of compressed text: Spark's readers omit rows of some damaged files without an error."""

import bz2
import gzip
import random
import zlib

import pyarrow as pa
import pytest
import xxhash

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import plain_error
from spark_cas.programs.input import spark_files
from tests.long import full
from tests.programs.loading import all_records

TO_LOG = ("--job", "load-1", "--partitions", "1", "--value", "value")
LINES = {"txt": b"%06d\n", "csv": b"%06d,a\n", "jsonl": b'{"value": "%06d"}\n'}
ROWS = 3000
CSV_OPTIONS = ("--read-option", "header=false", "--schema", "value STRING, other STRING")


def lines_of(kind, first, end):
    return b"".join(LINES[kind] % number for number in range(first, end))


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


def zstd_with_checksum(data):
    """Return a frame with one raw block and a checksum, which pyarrow does not write."""
    sizes = len(data).to_bytes(4, "little") + (len(data) << 3 | 1).to_bytes(3, "little")
    checksum = xxhash.xxh64_intdigest(data).to_bytes(8, "little")[:4]
    return b"\x28\xb5\x2f\xfd\xa4" + sizes + data + checksum


SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
"""A zstd frame without data."""


def flipped(data, byte):
    changed = bytearray(data)
    changed[byte] ^= 0x10
    return bytes(changed)


def lines(first, end):
    return lines_of("txt", first, end)


RANDOM_LINES = random.Random(1).randbytes(1_200_000).hex().encode() + b"\n"
"""More bytes than one block of bzip2 or zstd holds."""
TWO_FRAMES = zstd(lines(0, ROWS)) + zstd(lines(ROWS, 2 * ROWS))
TWO_MEMBERS = bz2.compress(lines(0, ROWS)) + bz2.compress(lines(ROWS, 2 * ROWS))
FIRST = {"zst": len(zstd(lines(0, ROWS))), "bz2": len(bz2.compress(lines(0, ROWS)))}
TWO_BLOCKS = bz2.compress(lines(0, 10) + RANDOM_LINES)
WITH_CHECKSUM = zstd_with_checksum(lines(0, 3))
DAMAGED = {
    "second frame cut in its magic number.zst": TWO_FRAMES[: FIRST["zst"] + 2],
    "second frame cut in its header.zst": TWO_FRAMES[: FIRST["zst"] + 5],
    "second frame cut in its block.zst": TWO_FRAMES[: FIRST["zst"] + 900],
    "second frame cut in its last byte.zst": TWO_FRAMES[:-1],
    "frame of many blocks cut.zst": zstd(lines(0, ROWS)) + zstd(RANDOM_LINES)[:-200_000],
    "only frame cut.zst": zstd(lines(0, ROWS))[:-1],
    "wrong checksum.zst": WITH_CHECKSUM[:-1] + b"x",
    "wrong byte.zst": flipped(WITH_CHECKSUM, -10),
    "garbage.zst": zstd(lines(0, ROWS)) + b"garbage here",
    "second member cut in its magic number.bz2": TWO_MEMBERS[: FIRST["bz2"] + 2],
    "second member cut in its block.bz2": TWO_MEMBERS[: FIRST["bz2"] + 900],
    "second member cut in its last byte.bz2": TWO_MEMBERS[:-1],
    "cut before second block.bz2": TWO_BLOCKS[: len(TWO_BLOCKS) * 3 // 4],
    "only member cut.bz2": bz2.compress(lines(0, ROWS))[:-1],
    "wrong bit in first block.bz2": flipped(TWO_BLOCKS, 100_000),
    "wrong bit in last block.bz2": flipped(TWO_BLOCKS, -100_000),
    "wrong bit in a short file.bz2": flipped(bz2.compress(lines(0, ROWS)), 60),
    "garbage.bz2": bz2.compress(lines(0, ROWS)) + b"garbage here",
}

MANY_EMPTY = zstd(b"") * 20_000 + SKIPPABLE * 20_000 + zstd(b"1\n")
COMPLETE = {
    "two frames.zst": TWO_FRAMES,
    "frame with a checksum.zst": WITH_CHECKSUM,
    "many blocks.zst": zstd(RANDOM_LINES),
    "many frames without data.zst": MANY_EMPTY,
    "two members.bz2": TWO_MEMBERS,
    "members of many blocks.bz2": TWO_BLOCKS + bz2.compress(b"") + TWO_BLOCKS,
    "empty member.bz2": bz2.compress(b""),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_decompression_of_damaged_data_fails(name):
    with pytest.raises(OSError, match=r"[a-z]"):
        spark_files.decompress(name, pa.py_buffer(DAMAGED[name]))


@pytest.mark.parametrize("name", COMPLETE)
def test_complete_data_decompresses(name):
    spark_files.decompress(name, pa.py_buffer(COMPLETE[name]))


@pytest.mark.parametrize(
    "name",
    [
        "second frame cut in its block.zst",
        "second member cut in its block.bz2",
        *full(
            "only frame cut.zst", "wrong checksum.zst", "cut before second block.bz2", "wrong bit in first block.bz2"
        ),
    ],
)
@pytest.mark.spark
def test_damaged_file_is_rejected_before_a_row_is_appended(load, tmp_path, name):
    (tmp_path / "a.txt").write_bytes(lines(0, 3))
    file = tmp_path / f"b.txt.{name.rpartition('.')[2]}"
    file.write_bytes(DAMAGED[name])
    code, report, told = load("--input", f"{tmp_path}/*.txt*", "--format", "text", *TO_LOG)
    assert (code, report["error"], report["appended_rows"]) == (2, "INPUT_UNREADABLE", 0), told
    assert f"file:{file}: the file is cut or damaged: " in told
    assert "Replace it with a complete copy." in told


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("csv", "zst"),
        ("jsonl", "bz2"),
        *[pytest.param(*each, marks=pytest.mark.full) for each in (("csv", "bz2"), ("jsonl", "zst"))],
    ],
)
def test_damaged_csv_and_json_are_rejected(load, tmp_path, kind, suffix):
    compress = zstd if suffix == "zst" else bz2.compress
    options = CSV_OPTIONS if kind == "csv" else ()
    data = compress(lines_of(kind, 0, ROWS)) + compress(lines_of(kind, ROWS, 2 * ROWS))
    (tmp_path / f"a.{kind}.{suffix}").write_bytes(data[:-1])
    code, report, told = load("--input", str(tmp_path / f"a.{kind}.{suffix}"), *options, *TO_LOG)
    assert (code, report["error"], report["appended_rows"]) == (2, "INPUT_UNREADABLE", 0), told


@pytest.mark.spark
@pytest.mark.parametrize("suffix", ["zst", *full("bz2")])
@pytest.mark.parametrize("kind", LINES)
def test_frames_and_members_load_completely(load, tmp_path, kind, suffix):
    compress = zstd if suffix == "zst" else bz2.compress
    empty = compress(b"") + (SKIPPABLE if suffix == "zst" else b"")
    cut = len(lines_of(kind, 0, 100)) - 3  # within a line
    data = lines_of(kind, 0, ROWS)
    parts = (data[:cut], b"", data[cut:])
    (tmp_path / f"a.{kind}.{suffix}").write_bytes(empty + empty.join(map(compress, parts)) + empty)
    options = CSV_OPTIONS if kind == "csv" else ()
    code, report, told = load("--input", str(tmp_path / f"a.{kind}.{suffix}"), *options, *TO_LOG)
    assert (code, report["rows"]) == (0, ROWS), told
    (records,) = all_records(load.log)
    assert [row["value"] for _, row in records] == [b"%06d" % number for number in range(ROWS)]


@pytest.mark.spark
@pytest.mark.parametrize("suffix", ["zst", "bz2"])
def test_file_without_bytes_beside_others_has_no_rows(load, tmp_path, suffix):
    (tmp_path / f"a.txt.{suffix}").write_bytes(b"")
    (tmp_path / "b.txt").write_bytes(b"1\n")
    code, report, told = load("--input", f"{tmp_path}/*.txt*", "--format", "text", *TO_LOG)
    assert (code, report["rows"]) == (0, 1), told


@pytest.mark.spark
def test_first_damaged_file_is_named(load, tmp_path):
    for name in ("c.txt.zst", "b.txt.zst"):
        (tmp_path / name).write_bytes(zstd(lines(0, ROWS))[:-1])
    (tmp_path / "a.txt.zst").write_bytes(TWO_FRAMES)
    code, _, told = load("--input", f"{tmp_path}/*.txt*", "--format", "text", *TO_LOG)
    assert (code, "b.txt.zst: " in told, "c.txt.zst" in told) == (2, True, False), told


@pytest.mark.spark
def test_file_that_is_too_large_for_the_check_is_rejected(load, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_files, "MOST_COMPRESSED_BYTES", len(TWO_FRAMES) - 1)
    file = tmp_path / "a.txt.zst"
    file.write_bytes(TWO_FRAMES)
    code, report, told = load("--input", str(file), *TO_LOG)
    assert (code, report["error"], report["appended_rows"]) == (2, "INPUT_UNREADABLE", 0), told
    assert f"{file}: " in told
    assert "Decompress it, or compress it with gzip." in told


@pytest.mark.spark
def test_damaged_gzip_and_deflate_end_with_exit_code_2(spark, load, tmp_path):
    data = lines(0, ROWS)
    for suffix, whole in {"gz": gzip.compress(data), "deflate": zlib.compress(data)}.items():
        for byte in (*range(20, len(whole) - 10, len(whole) // 6), -2):
            file = tmp_path / f"{byte}.txt.{suffix}"
            file.write_bytes(flipped(whole, byte))
            with pytest.raises(Exception) as raised:
                spark.read.text(str(file)).collect()
            assert isinstance(plain_error(raised.value), UnreadableInputError), (file, raised.value)
    code, report, told = load("--input", str(file), "--format", "text", *TO_LOG)
    assert (code, report["error"], str(file) in told) == (2, "INPUT_UNREADABLE", True), told


@pytest.mark.spark
def test_error_of_a_cut_gzip_file_has_sentences_and_no_read_option(load, tmp_path):
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(lines(0, ROWS))[:-200])
    code, report, told = load("--input", str(file), *TO_LOG)
    assert (code, report["appended_rows"], str(file) in told) == (2, 0, True), told
    assert "Unexpected end of input stream. Correct the file." in told
    assert "--read-option" not in told
