"""Reads and streams during expansions keep the order of each key, however appends and reads interleave with them."""

import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.options.parse import parse_read, parse_read_stream
from spark_cas.spark.reading.read import RecordsPartition, RecordsReader
from spark_cas.spark.reading.selected_logs import SelectedLogs
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import RECORDS
from tests.spark.expanding_writer import KEYS
from tests.spark.streams import Stream
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import load, rows_of
from tests.support.writing import append_foreign

WRITER = Path(__file__).with_name("expanding_writer.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def reader(path):
    return partial(reader_of, path)


def reader_of(address, **options):
    """Return a new reader, as for a query that starts at the earliest offsets."""
    given = {"path": address, "startingoffsets": "earliest", **options}
    return RecordsStreamReader(parse_read_stream(given), RECORDS)


def batch(reader, start):
    """Read the next batch in a random order of tasks. Return its end and its (partition, key, value)s."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    tasks = reader.partitions(start, end) if end != start else []
    random.shuffle(tasks)
    found = []
    for task in tasks:
        for records in reader.read(task):
            columns = [records.column(name).to_pylist() for name in ("partition", "key", "value")]
            found += [(partition, key, value.decode()) for partition, key, value in zip(*columns, strict=True)]
    return end, found


def batches(reader, start):
    """Read until there are no new records. Return the end, and the sorted (partition, value)s of each batch."""
    told = []
    while (step := batch(reader, start))[0] != start:
        start = step[0]
        told.append(sorted((partition, value) for partition, _, value in step[1]))
    return start, told


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "address", ["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.full])], indirect=True
)
def test_keys_stay_in_order_from_2_to_16_partitions_under_load(address):
    count = 15
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    commands = [[sys.executable, str(WRITER), address, name, str(count)] for name in ("a", "b")]
    writers = [subprocess.Popen(command, cwd=ROOT, env=environment) for command in commands]
    seen: dict[bytes, int] = {}
    used = set()
    try:
        with open_log(address) as log:
            one, left = reader_of(address, maxoffsetspertrigger="8"), [4, 8, 16]
            end = one.initialOffset()
            while len(seen) < 2 * KEYS or min(seen.values()) < count - 1:
                assert all(writer.poll() in (None, 0) for writer in writers)
                # The stream is stopped during the first two expansions.
                step = batch(one, end) if len(left) < 2 else (end, [])
                for partition, key, value in step[1]:
                    assert int(value) == seen.get(key, -1) + 1, f"key {key!r} of partition {partition}"
                    seen[key] = int(value)
                    used.add(partition)
                end = step[0]
                # Expand by the number of appended records, because reads lag.
                ends = log.bounds_of(range(log.layout().partitions), waiting=False)
                if left and sum(each.end_offset for each in ends) > 2 * KEYS * count * (4 - len(left)) // 4:
                    expand_log(log, left.pop(0))
            assert (left, log.layout().partitions) == ([], 16)
    finally:
        for writer in writers:
            writer.kill() if writer.poll() is None and sys.exc_info()[0] else None
            assert writer.wait(60) == 0
    assert max(used) >= 8


def test_new_partitions_are_read_after_all_older_records(address):
    with open_log(address) as log:
        append_foreign(log, 0, *"ab")
        append_foreign(log, 1, "c")
        start = reader_of(address).initialOffset()
        expand_log(log, 4)
        append_foreign(log, 0, "d")
        append_foreign(log, 2, "e")
        expand_log(log, 8)
        append_foreign(log, 2, "f")
        append_foreign(log, 6, "g")
    # The stream was stopped during both expansions.
    end, told = batches(reader_of(address), start)
    assert told == [[(0, "a"), (0, "b"), (0, "d"), (1, "c")], [(2, "e"), (2, "f")], [(6, "g")]]
    assert [*end] == [log.topic]
    assert "held" not in end[log.topic]


def test_stream_stopped_at_a_threshold_resumes_in_order(log, reader):
    append_foreign(log, 0, *"abc")
    append_foreign(log, 1, "d")
    expand_log(log, 4)
    append_foreign(log, 3, "e")
    start = reader().initialOffset()
    assert start["flights"]["held"] == [{"epoch": 1, "partitions": 4, "thresholds": [4, 2]}]
    end, read = batch(reader(maxoffsetspertrigger="3"), start)
    assert {partition for partition, _, _ in read} == {0, 1}
    assert end["flights"]["held"] == start["flights"]["held"]
    end, told = batches(reader(), end)
    assert told[-1] == [(3, "e")]
    assert "held" not in end["flights"]


def test_stream_that_begins_after_the_thresholds_reads_all(log, reader):
    append_foreign(log, 0, "a")
    expand_log(log, 4)
    start = reader(startingoffsets="latest").initialOffset()
    append_foreign(log, 0, "b")
    append_foreign(log, 3, "c")
    assert batches(reader(), start)[1] == [[(0, "b"), (3, "c")]]


def test_where_keys_move_among_the_old_partitions_these_are_held_at_their_thresholds(log, reader):
    append_foreign(log, 0, "a")
    append_foreign(log, 1, "b")
    start = reader().initialOffset()
    expand_log(log, 3)
    append_foreign(log, 0, "c")
    append_foreign(log, 2, "d")
    assert batches(reader(), start)[1] == [[(0, "a"), (1, "b")], [(0, "c"), (2, "d")]]


@pytest.mark.parametrize("partitions", [3, 4])
def test_atomic_load_after_an_expansion_is_in_one_batch(address, partitions):
    with open_log(address) as log:
        append_foreign(log, 0, "a")
        append_foreign(log, 1, "b")
        one = reader_of(address, isolation="load")
        end, _ = batches(one, one.initialOffset())
        append_foreign(log, 1, "c")
        expand_log(log, partitions)
        append_whole(log)
    assert batches(one, end)[1] == [[(1, "c")], [(at, f"{at}.0") for at in range(partitions)]]


def append_whole(log):
    """Append one row to each partition in one atomic load."""
    plan = pin_plan(log, "whole", ExpectedOffsets("end"), whole=True)
    complete_job(log, plan, load(log, plan, rows_of(1, *range(log.layout().partitions))))


@pytest.mark.parametrize("assigned", [(), (0, 1)])
def test_read_during_an_expansion_has_all_or_nothing_of_a_load(path, log, monkeypatch, assigned):
    options = parse_read({"path": path, **({"assign": json.dumps({"flights": assigned})} if assigned else {})})
    with open_log(path) as other:
        changing = ExpandedMeanwhile(other, lambda: (expand_log(log, 4), append_whole(log)))
        monkeypatch.setattr(SelectedLogs, "log", lambda _, __: changing)
        tasks = RecordsReader(options, RECORDS).partitions()
    ranges = [each for task in tasks if isinstance(task, RecordsPartition) for each in task.ranges]
    assert [at.partition for at, _ in ranges] == [*(assigned or range(4))]


def test_a_stream_that_an_expansion_ends_within_has_all_or_nothing_of_a_load(log, reader, monkeypatch):
    append_foreign(log, 0, "a")
    one = reader(isolation="load")
    start = one.initialOffset()
    with pytest.raises(InjectedFaultError):
        expand_log(FaultyLog(log, Fault("finish_expansion", 1, When.BEFORE)), 4)
    # The stream has reached the ends of the old partitions.
    end, told = batches(one, start)
    with open_log(log.spec) as other:
        changing = ExpandedMeanwhile(other, lambda: (expand_log(log, 4), append_whole(log)))
        monkeypatch.setattr(SelectedLogs, "log", lambda _, __: changing)
        assert [*told, *batches(one, end)[1]] == [[(0, "a")], [(at, f"{at}.0") for at in range(4)]]


class ExpandedMeanwhile:
    """A log that is expanded between two requests: the layout is the one before, the end offsets are those after."""

    def __init__(self, log, change):
        self._log = log
        self._change = change

    def __getattr__(self, name):
        return getattr(self._log, name)

    def bounds_of(self, partitions, **how):
        change, self._change = self._change, lambda: None
        change()
        return self._log.bounds_of(partitions, **how)


@pytest.mark.parametrize("batches_before", [0, 1])
def test_expansion_within_one_read_is_detected(log, reader, monkeypatch, batches_before):
    append_foreign(log, 0, "a")
    one = reader(maxoffsetspertrigger="9")
    end = one.initialOffset()
    for _ in range(batches_before):
        end, _ = batch(one, end)
    append_foreign(log, 1, *(f"K{number}" for number in range(12)))

    def expand():
        # An expansion to 3 partitions moves keys between existing partitions.
        expand_log(log, 3)
        append_foreign(log, 0, *(f"K{number}" for number in range(12, 24)))

    with open_log(log.spec) as other:
        changing = ExpandedMeanwhile(other, expand)
        monkeypatch.setattr(SelectedLogs, "log", lambda _, __: changing)
        told = batches(one, end)[1]
    read = [value for each in told for partition, value in each if value.startswith("K")]
    assert sorted(read, key=lambda value: int(value[1:])) == [f"K{number}" for number in range(24)]
    first_new = next(number for number, each in enumerate(told) if (0, "K12") in each)
    last_old = max(number for number, each in enumerate(told) if (1, "K11") in each)
    assert last_old < first_new


def test_partitions_of_an_expansion_that_is_not_finished_are_not_there_yet(log, reader):
    append_foreign(log, 0, "a")
    start = reader().initialOffset()
    with pytest.raises(InjectedFaultError):
        expand_log(FaultyLog(log, Fault("add_partitions", 1, When.AFTER)), 4)
    end, told = batches(reader(), start)
    assert (told, [*end["flights"]["offsets"]]) == ([[(0, "a")]], ["0", "1"])
    expand_log(log, 4)
    append_foreign(log, 3, "b")
    assert batches(reader(), end)[1] == [[(3, "b")]]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_reads_each_record_once_through_expansions_and_restarts(spark, path, tmp_path, log):
    stream = Stream(spark, tmp_path / "query", path=path, startingOffsets="earliest")
    append_foreign(log, 0, *"abc")
    append_foreign(log, 1, "d")
    assert stream.run(maxOffsetsPerTrigger=2) == [2, 2]
    append_foreign(log, 1, "e")
    expand_log(log, 4)
    append_foreign(log, 2, *"fg")
    expand_log(log, 8)
    append_foreign(log, 6, "h")
    assert stream.run() == [1, 2, 1]
    assert stream.run() == []
    assert stream.values() == [*"abcdefgh"]
    assert stream.offsets()[-1]["flights"]["layout_epoch"] == 2
