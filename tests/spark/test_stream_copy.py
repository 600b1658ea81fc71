"""Copies of a log: each record once, each key in order, from one backend to the other."""

import json

import pyarrow as pa
import pytest

from jobs.stream_copy import main, parse_arguments, reading_options
from spark_cas import error_from_text, open_log
from spark_cas.options.parse import parse_read_stream
from spark_cas.spark.versions import HAS_READ_LIMITS
from tests.kafka.clients import create_topic
from tests.kafka.raw_records import RawRecord, append_raw
from tests.support.writing import append_foreign, records_in

pytestmark = pytest.mark.timeout(300)


def by_key(log):
    """Return the records of each key in order, without their offsets."""
    found: dict[bytes, list[object]] = {}
    for partition in range(log.layout().partitions):
        for _, row in records_in(log, partition):
            found.setdefault(row["key"], []).append({**row, "headers": row["headers"] or []})
    return found


@pytest.mark.spark
@pytest.mark.kafka
def test_a_topic_is_copied_into_a_directory_and_back_exactly_once(spark, broker, tmp_path, capsys):
    topics = [f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, 2)}" for _ in range(2)]
    folder = str(tmp_path / "log")

    def copy(source, target, *more):
        arguments = ["--from", source, "--to", target, "--job", "copy", "--checkpoint", str(tmp_path / target[-6:])]
        arguments += ["--from-option", "maxOffsetsPerTrigger=25", "--to-option", "maxRecordsPerChunk=10"]
        assert main([*arguments, *more], "stream_copy.py", lambda _: spark) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out.splitlines()[-1])["rows"], shown.err

    with open_log(topics[0]) as source:
        for number in range(4):
            append_foreign(source, number % 2, *(f"{number}-{at % 3}" for at in range(15)))
        rows, told = copy(topics[0], folder, "--partitions", "3")
        assert rows == 60
        assert "batch 0: 25 records" in told
        assert (" 0 behind" in told.splitlines()[-1]) == HAS_READ_LIMITS
        assert copy(topics[0], folder, "--partitions", "3")[0] == 0
        append_foreign(source, 0, "0-0", "0-9")
        assert copy(topics[0], folder)[0] == 2
        assert copy(folder, topics[1])[0] == 62
        expected = by_key(source)
    for address in (folder, topics[1]):
        with open_log(address) as target:
            assert by_key(target) == expected


UNUSUAL = [
    RawRecord(b"duplicates", key=b"", headers=[(b"a", None), (b"a", b""), (b"", b"\xff"), ("é".encode(), b"2")]),
    RawRecord(None, key=b"tombstone", headers=[(b"why", b"deleted")]),
    RawRecord(b"large", headers=[(b"large", b"x" * 500_000)]),
    RawRecord(b"many", headers=[(b"many", b"x")] * 5_000),
    RawRecord(b"without time", timestamp_ms=-1),
    RawRecord(b"negative", timestamp_ms=-5),
    RawRecord(b"late", timestamp_ms=(2**63 - 1) // 1000),
]


@pytest.fixture
def topics(broker):
    """The addresses of two topics that accept any timestamp."""
    accepting = {"message_timestamp_after_max_ms": str(2**63 - 1)}
    return [f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, 1, **accepting)}" for _ in range(2)]


@pytest.fixture
def copy(spark, topics, tmp_path, capsys):
    """A function that copies one topic into the other and returns the exit code and the text on stderr."""

    def run(*more):
        arguments = ["--from", topics[0], "--to", topics[1], "--job", "copy", "--checkpoint", str(tmp_path / "copy")]
        code = main([*arguments, *more], "stream_copy.py", lambda _: spark)
        shown = capsys.readouterr()
        return code, shown.err, json.loads(shown.out.splitlines()[-1])

    return run


def append_to(address, *records):
    append_raw(address.split("/")[2], address.split("/")[3], *records)


def rows_in(address):
    """Return the time, as a number, and the other columns of each record in partition 0."""
    with open_log(address) as log:
        rows = [records for _, records in log.read(0, log.bounds(0).range)]
    times = [each for records in rows for each in records["timestamp"].cast(pa.int64()).to_pylist()]
    others = [each for records in rows for each in records.select(["key", "value", "headers"]).to_pylist()]
    return list(zip(times, others, strict=True))


@pytest.mark.spark
@pytest.mark.kafka
def test_unusual_records_of_other_producers_are_copied_unchanged(copy, topics):
    append_to(topics[0], *UNUSUAL)
    assert copy()[0] == 0
    assert len(rows_in(topics[0])) == len(UNUSUAL)
    assert rows_in(topics[1]) == rows_in(topics[0])


def check_unreadable(address, code, shown, result):
    """Check that a copy failed at offset 1 with the plain error of the package."""
    assert (code, result["error"]) == (6, "UNREADABLE_RECORD")
    message = result["message"]
    assert message.startswith(f"[UNREADABLE_RECORD] partition 0 of topic {address.split('/')[3]}: ")
    assert "offset 1 " in message
    assert "SQLSTATE" not in message
    error = error_from_text(message)
    assert error is not None
    assert (error.partition, error.offset) == (0, 1)
    assert f"error: [UNREADABLE_RECORD] {error.message}\n" in shown


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.kafka
def test_copy_fails_at_a_header_that_it_would_change(copy, topics):
    append_to(topics[0], RawRecord(b"a"), RawRecord(b"b", headers=[(b"\xff", b"1")]))
    check_unreadable(topics[0], *copy())
    assert copy("--from-option", "includeHeaders=false")[0] == 0
    assert [row["value"] for _, row in rows_in(topics[1])] == [b"a", b"b"]


@pytest.mark.spark
@pytest.mark.kafka
def test_copy_fails_at_a_timestamp_that_it_would_change(copy, topics):
    append_to(topics[0], RawRecord(b"a"))
    append_to(topics[0], RawRecord(b"b", timestamp_ms=2**63 - 1))
    check_unreadable(topics[0], *copy())
    assert b"b" not in [row["value"] for _, row in rows_in(topics[1])]


def test_batch_is_limited_by_default(capsys):
    needed = ["--from", "a", "--to", "b", "--job", "copy", "--checkpoint", "c"]
    read = reading_options(parse_arguments(needed, "stream_copy.py"))
    assert read == {
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "processingTime": "true",
        "maxOffsetsPerTrigger": "1000000",
    }
    read = reading_options(parse_arguments([*needed, "--from-option", "maxOffsetsPerTrigger=7"], "stream_copy.py"))
    assert read["maxOffsetsPerTrigger"] == "7"
    minimum = [*needed, "--from-option", "minOffsetsPerTrigger=5"]
    assert "minOffsetsPerTrigger" not in reading_options(parse_arguments(minimum, "stream_copy.py"))
    assert "minOffsetsPerTrigger" in reading_options(parse_arguments([*minimum, "--follow"], "stream_copy.py"))
    read = reading_options(parse_arguments([*needed, "--from-option", "Isolation=LOAD"], "stream_copy.py"))
    assert parse_read_stream({**read, "path": "/data/log"}).whole_loads
    with pytest.raises(SystemExit):
        parse_arguments([*needed, "--to-option", "Job=other"], "stream_copy.py")
    with pytest.raises(SystemExit):
        parse_arguments(["--help"], "stream_copy.py")
    assert "at most 1,000,000 offsets" in " ".join(capsys.readouterr().out.split())
