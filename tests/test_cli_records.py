"""`spark-cas read` and `tail`: the selected records, their format, and the exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spark_cas import append_once, open_log, raise_for_outcome
from spark_cas.core.offsets import Bounds
from spark_cas.core.records import RECORDS
from spark_cas.log import clock
from spark_cas.log.objects import ObjectLog
from tests.kafka import clients
from tests.support.programs import run_cli, run_page
from tests.support.writing import append_foreign
from tests.test_cli import WITHOUT_SPARK

ROOT = Path(__file__).parents[1]
ODD = {
    "key": b"\xff\t",
    "value": "two\nlines é".encode(),
    "headers": [{"key": "h", "value": b"1"}, {"key": "i", "value": None}],
    "timestamp": 1_589_718_600_250,
}
FAR = {"key": None, "value": None, "headers": None, "timestamp": 2**52}


@pytest.fixture
def log(tmp_path):
    """A log with two partitions: 0 to 7 in the first, odd records in the second."""
    address = str(tmp_path / "flights")
    with open_log(address) as opened:
        opened.create(2)
        append_foreign(opened, 0, *"0123")
        append_foreign(opened, 0, *"4567")
        records = pa.Table.from_pylist([ODD, FAR], RECORDS)
        raise_for_outcome(append_once(opened, 1, records, job="odd", expected_offset=0), 1)
    return address


def shown(*argv):
    ended = run_cli(*argv)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def keys_in(lines):
    return [line.split("\t")[3] for line in lines]


def refused(*argv):
    ended = run_cli(*argv)
    assert (ended.code, ended.out) == (2, "")
    return " ".join(ended.err.split())


def test_read_shows_a_line_for_each_record(log):
    lines = shown("read", log)
    assert keys_in(lines) == [*"01234567", "\\xff\\t", "<null>"]
    assert lines[8] == "1\t0\t2020-05-17 12:30:00\t\\xff\\t\ttwo\\nlines é\th=1\ti=<null>"
    assert lines[9] == f"1\t1\t{2**52} ms\t<null>\t<null>"
    assert keys_in(shown("read", log, "--limit", "2")) == ["0", "1"]
    part = ("read", log, "--partition", "0")
    assert keys_in(shown(*part)) == [*"01234567"]
    assert keys_in(shown(*part, "--from", "3", "--to", "5")) == ["3", "4"]
    assert shown(*part, "--from", "8") == []
    with open_log(log) as opened:
        opened.trim(0, 4)
    assert keys_in(shown("read", log, "--partition", "0", "--limit", "1")) == ["4"]
    assert "partition 0 starts at offset 4 and ends at 8" in refused(*part, "--from", "3")
    assert "--from 7, --to 6" in refused(*part, "--from", "7", "--to", "6")
    assert "Add --partition" in refused("read", log, "--to", "5")
    assert "the log has 2" in refused("tail", log, "--partition", "2")


def rejection(*argv):
    """Return the message of a command that fails with an OptionError."""
    code, out, err = run_cli(*argv)
    assert (code, out, err.startswith("error: [OPTION] ")) == (2, "", True)
    return err.removeprefix("error: [OPTION] ")


def named(*options):
    return [argument for each in options for argument in ("--log-option", each)]


@pytest.fixture
def aged(tmp_path):
    """A log with records of the times 10, 20 and 30 in partition 0, and of the time 20 in partition 1."""
    address = str(tmp_path / "aged")
    with open_log(address) as opened:
        opened.create(2)
        append_aged(opened)
    return address


def append_aged(log):
    for partition, times in enumerate(([10, 20, 30], [20])):
        rows = [{"key": None, "value": b"%d" % each, "headers": None, "timestamp": each} for each in times]
        table = pa.Table.from_pylist(rows, RECORDS)
        raise_for_outcome(append_once(log, partition, table, job=f"aged-{partition}", expected_offset=0), len(times))


def offsets_in(lines):
    return [tuple(map(int, line.split("\t")[:2])) for line in lines]


ALL = [(0, 0), (0, 1), (0, 2), (1, 0)]
RANGES = [
    (["startingOffsets=earliest", "endingOffsets=latest"], ALL),
    (["startingOffsets=latest"], []),
    (["endingOffsets=earliest"], []),
    (['startingOffsets={"TOPIC": {"0": 1, "1": -1}}'], ALL[1:3]),
    (['endingOffsets={"TOPIC": {"0": 2, "1": -2}}'], ALL[:2]),
    (["startingTimestamp=20"], ALL[1:]),
    (["STARTINGTIMESTAMP=15", "endingTimestamp=30"], [(0, 1), (1, 0)]),
    (['startingOffsetsByTimestamp={"TOPIC": {"0": 30, "1": 1}}'], ALL[2:]),
    (['endingOffsetsByTimestamp={"TOPIC": {"0": 20, "1": 20}}'], ALL[:1]),
    (["startingTimestamp=30", "startingOffsetsByTimestampStrategy=latest"], ALL[2:3]),
]


def check_ranges(address, topic):
    for options, expected in RANGES:
        given = named(*(each.replace("TOPIC", topic) for each in options))
        assert offsets_in(shown("read", address, *given)) == expected, options


def test_read_applies_start_and_end_of_log_options(aged):
    check_ranges(aged, "aged")
    one = ("read", aged, "--partition", "0")
    assert offsets_in(shown(*one, *named('startingOffsets={"aged": {"0": 2}}'))) == [(0, 2)]
    assert "must name each partition" in rejection("read", aged, *named('startingOffsets={"aged": {"0": 2}}'))
    assert "are older" in rejection("read", aged, *named("startingTimestamp=21"))


def test_read_applies_fail_on_data_loss(log):
    with open_log(log) as opened:
        opened.trim(0, 4)
    start = ("read", log, "--partition", "0", *named('startingOffsets={"flights": {"0": 3}}'))
    assert "error: [TRIMMED]" in run_cli(*start).err
    assert keys_in(shown(*start, *named("failOnDataLoss=false"))) == ["4", "5", "6", "7"]


def test_commands_reject_options_that_they_do_not_apply(log):
    for option in ("view=offsets", "ASSIGN={}", "logId=x", "includeHeaders=true", "minPartitions=2", "job=j"):
        for command in ("read", "tail", "offsets"):
            message = rejection(command, log, *named(option))
            assert message.lower().startswith(f"option {option.partition('=')[0].lower()} has no effect"), message
    for option in ("startingTimestamp=1", "endingOffsets=earliest", "failOnDataLoss=false"):
        expected = f"option {option.partition('=')[0]} is for spark-cas read without --from and --to."
        for argv in (["read", log, "--partition", "0", "--from", "1"], ["tail", log], ["describe", log]):
            assert rejection(*argv, *named(option)).startswith(expected)
    assert "maxOffsetsPerTrigger" in rejection("read", log, *named("maxOffsetsPerTrigger=1"))


def test_json_has_the_exact_record(log):
    odd, far = map(json.loads, shown("read", log, "--json", "--partition", "1"))
    assert odd == {
        "partition": 1,
        "offset": 0,
        "timestamp_ms": ODD["timestamp"],
        "key": {"base64": "/wk="},
        "value": "two\nlines é",
        "headers": [{"key": "h", "value": "1"}, {"key": "i", "value": None}],
    }
    assert (far["key"], far["value"], far["headers"], far["timestamp_ms"]) == (None, None, [], 2**52)
    assert [json.loads(line)["offset"] for line in shown("tail", log, "--json", "-n", "1")] == [7, 1]


def test_tail_shows_the_newest_of_each_partition(log):
    assert keys_in(shown("tail", log, "-n", "3")) == ["5", "6", "7", "\\xff\\t", "<null>"]
    assert keys_in(shown("tail", log, "-n", "3", "--partition", "0")) == ["5", "6", "7"]
    assert shown("tail", log, "-n", "0") == []
    assert len(shown("tail", log)) == 10


def started(*argv):
    """Start the program in a process that cannot import pyspark."""
    return subprocess.Popen(
        [sys.executable, "-c", WITHOUT_SPARK, *argv],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_looking_needs_no_spark_and_a_closed_pipe_ends_it_quietly(log):
    with open_log(log) as opened:
        for _ in range(20):
            append_foreign(opened, 0, *("x" * 1000 + str(number) for number in range(100)))
    reading = started("read", log)
    assert reading.stdout is not None
    assert reading.stderr is not None
    with reading:
        assert reading.stdout.readline().split("\t")[3] == "0"
        reading.stdout.close()
        assert reading.stderr.read() == ""
    with started("describe", log) as describing:
        out, told = describing.communicate(timeout=60)
        assert (describing.returncode, told) == (0, "")
        assert "2,008" in out


def follow(address):
    """Append records while the program follows the log, until Ctrl-C."""
    following = started("tail", address, "--follow", "-n", "1")
    assert following.stdout is not None
    assert following.stderr is not None
    with following, open_log(address) as opened:
        try:
            assert following.stdout.readline().split("\t")[3] == "before"
            append_foreign(opened, 0, "a", "b")
            assert keys_in([following.stdout.readline() for _ in range(2)]) == ["a", "b"]
            append_foreign(opened, 0, "c")
            assert keys_in([following.stdout.readline()]) == ["c"]
            following.send_signal(signal.SIGINT)
            assert (following.wait(60), following.stderr.read()) == (130, "")
        finally:
            following.kill()


@pytest.fixture
def followed(log, monkeypatch):
    """A function that follows the log, with a step at each wait, and then Ctrl-C. Returns (code, stdout, stderr)."""

    def followed(*steps):
        left = iter(steps)

        def wait(_):
            step = next(left, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr("spark_cas.cli.records.time.sleep", wait)
        return run_cli("tail", log, "--follow", "-n", "0", "--partition", "0")

    return followed


def test_tail_reports_offsets_that_were_trimmed(log, followed):
    def append_and_trim():
        with open_log(log) as opened:
            append_foreign(opened, 0, "8", "9")
            append_foreign(opened, 0, "10")
            opened.trim(0, 10)

    code, out, told = followed(append_and_trim, lambda: None)
    assert (code, keys_in(out.splitlines())) == (130, ["10"])
    assert told.splitlines() == ["partition 0: offsets 8 to 9 were trimmed before they were shown"]


def test_tail_of_a_log_that_lost_records_ends_with_an_error(log, followed, monkeypatch):
    known = []

    def shorter(_log, _partitions, *, at_least, **_):
        known.append(at_least)
        return [Bounds(0, 6)]

    code, out, told = followed(lambda: monkeypatch.setattr(ObjectLog, "bounds_of", shorter))
    assert (code, out, known) == (3, "", [[8]])
    assert "partition 0 of log flights ends at 6, and was shown up to 8" in told


def test_all_partitions_are_read_concurrently(log, monkeypatch):
    asked = []
    bounds_of = ObjectLog.bounds_of

    def counted(self, partitions, *, waiting):
        asked.append((tuple(partitions), waiting))
        return bounds_of(self, partitions, waiting=waiting)

    monkeypatch.setattr(ObjectLog, "bounds_of", counted)
    for command in ("offsets", "describe", "read", "tail"):
        shown(command, log)
    assert asked == [((0, 1), True)] * 4


def test_tail_follows(tmp_path):
    address = str(tmp_path / "flights")
    with open_log(address) as opened:
        opened.create(1)
        append_foreign(opened, 0, "before")
    follow(address)


@pytest.mark.kafka
def test_tail_of_a_topic_shows_records_after_markers_and_aborted_ones(broker):
    topic = clients.create_topic(broker.bootstrap)
    address = f"kafka://{broker.bootstrap}/{topic}"
    with open_log(address) as opened:
        append_foreign(opened, 0, "a", "b", "before")
    for _ in range(3):
        clients.append(broker.bootstrap, topic, *"0123456789", commit=False)
    here = ("tail", "--bootstrap-servers", broker.bootstrap, "--topic", topic)
    assert keys_in(shown(*here, "-n", "2")) == ["b", "before"]
    assert keys_in(shown(*here)) == ["a", "b", "before"]
    follow(address)


@pytest.mark.kafka
def test_read_of_a_topic_applies_start_and_end_of_log_options(broker):
    topic = clients.create_topic(broker.bootstrap, 2)
    address = f"kafka://{broker.bootstrap}/{topic}"
    with open_log(address) as opened:
        append_aged(opened)
    check_ranges(address, topic)


def test_commands_of_the_page_run(tmp_path):
    headers = [{"key": "source", "value": b"csv"}]
    record = {"key": b"N14228", "value": b"{}", "headers": headers, "timestamp": clock.now_ms()}
    with open_log(str(tmp_path / "logs/flights")) as log:
        log.create(1)
        raise_for_outcome(
            append_once(log, 0, pa.Table.from_pylist([record], RECORDS), job="one", expected_offset=0), 1
        )
    ended = run_page("docs/command-line.md", {"/data/": f"{tmp_path}/"})
    assert len(ended) > 1
    assert [(each.code, each.err, len(each.out.splitlines())) for each in ended] == [(0, "", 1)] * len(ended)
