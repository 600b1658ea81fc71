"""The copy of a log into another: each record once, each key in its order, from one backend to the other."""

import json

import pytest

from spark_cas import open_log
from spark_cas.options.parse import parse_read_stream
from spark_cas.programs.stream_copy import main, parse_arguments, reading_options, records_behind
from spark_cas.testing.writing import append_foreign, records_in
from tests.kafka.clients import create_topic

pytestmark = pytest.mark.timeout(300)


def by_key(log):
    """Offsets apart, what each key's records are, in their order."""
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
        assert " 0 behind" in told.splitlines()[-1]
        assert copy(topics[0], folder, "--partitions", "3")[0] == 0
        append_foreign(source, 0, "0-0", "0-9")
        assert copy(topics[0], folder)[0] == 2
        assert copy(folder, topics[1])[0] == 62
        expected = by_key(source)
    for address in (folder, topics[1]):
        with open_log(address) as target:
            assert by_key(target) == expected


def test_how_far_a_copy_is_behind():
    def at(**offsets):
        return json.dumps({"flights": {"log_id": "x", "layout_epoch": 0, "offsets": offsets}})

    assert records_behind({"endOffset": at(**{"0": 5, "1": 2}), "latestOffset": at(**{"0": 9, "1": 2, "2": 1})}) == 5
    assert records_behind({"endOffset": at(**{"0": 5}), "latestOffset": None}) == 0


def test_a_batch_is_bounded_unless_the_call_says_otherwise(capsys):
    needed = ["--from", "a", "--to", "b", "--job", "copy", "--checkpoint", "c"]
    read = reading_options(parse_arguments(needed, "stream_copy.py"))
    assert read == {"startingOffsets": "earliest", "includeHeaders": "true", "maxOffsetsPerTrigger": "1000000"}
    read = reading_options(parse_arguments([*needed, "--from-option", "maxOffsetsPerTrigger=7"], "stream_copy.py"))
    assert read["maxOffsetsPerTrigger"] == "7"
    read = reading_options(parse_arguments([*needed, "--from-option", "Isolation=LOAD"], "stream_copy.py"))
    assert parse_read_stream({**read, "path": "/data/log"}).whole_loads
    with pytest.raises(SystemExit):
        parse_arguments([*needed, "--to-option", "Job=other"], "stream_copy.py")
    with pytest.raises(SystemExit):
        parse_arguments(["--help"], "stream_copy.py")
    assert "at most 1,000,000 offsets" in " ".join(capsys.readouterr().out.split())
