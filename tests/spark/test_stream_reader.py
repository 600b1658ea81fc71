"""The streaming reader, called as Spark's planner calls it, on a log in a directory; no JVM."""

import json
from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.core.errors import LogNotFoundError, OptionError, TrimmedError, TruncatedError
from spark_cas.core.offsets import Bounds
from spark_cas.log.expanding import expand_log
from spark_cas.log.objects import paths
from spark_cas.log.objects.object_log import ObjectLog
from spark_cas.options.parse import parse_read, parse_read_stream
from spark_cas.spark.reading.read import RecordsPartition, RecordsReader
from spark_cas.spark.reading.selected_logs import LogState, SelectedLogs
from spark_cas.spark.reading.stream_offsets import StreamOffsets, stream_lag
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import RECORDS
from spark_cas.spark.versions import HAS_READ_LIMITS, ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.support.writing import TIME_MS, append_foreign

ALL = ReadAllAvailable()


@pytest.fixture
def reader(path):
    return lambda **options: RecordsStreamReader(parse_read_stream({"path": path, **options}), RECORDS)


def planned(reader):
    """Return the only task of a first batch with all available records."""
    (part,) = reader.partitions({}, reader.latestOffset(reader.initialOffset(), ALL))
    return part


def rows_in(reader, start, end):
    """Return the (partition, offset) of each record in a batch."""
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    columns = ([batch.column(name).to_pylist() for name in ("partition", "offset")] for batch in batches)
    return sorted(pair for each in columns for pair in zip(*each, strict=True))


def test_a_first_batch_that_is_run_again_begins_where_it_began(reader, log):
    append_foreign(log, 0, *"ab")
    first = reader()  # startingOffsets is latest for a stream
    start = first.initialOffset()
    append_foreign(log, 0, *"cd")
    end = first.latestOffset(start, ALL)
    # The query dies and restarts. Only the end of its first batch is recorded.
    append_foreign(log, 1, *"e")
    again = reader()
    assert rows_in(again, again.initialOffset(), end) == [(0, 2), (0, 3)]
    assert rows_in(again, end, again.latestOffset(end, ALL)) == [(1, 0)]


def expanded(log, _):
    expand_log(log, 4)


def expired(_, monkeypatch):
    monkeypatch.setattr(ObjectLog, "offset_since", lambda *_: None)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"startingoffsets": '{"flights": {"0": 1, "1": 0}}'}, expanded),
        ({"startingtimestamp": str(TIME_MS)}, expired),
    ],
)
def test_a_first_batch_that_was_planned_is_run_where_none_could_begin_now(reader, log, monkeypatch, options, change):
    append_foreign(log, 0, *"ab")
    append_foreign(log, 1, *"cd")
    first = reader(**options)
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    planned = rows_in(first, start, end)
    change(log, monkeypatch)
    again = reader(**options)
    nowhere = again.initialOffset()
    assert planned
    assert rows_in(again, nowhere, end) == planned
    append_foreign(log, 1, "e")
    assert rows_in(again, end, again.latestOffset(end, ALL))[-1][0] == 1
    # If no batch was planned, planning raises the error of the start.
    with pytest.raises(OptionError, match="option starting"):
        again.latestOffset(nowhere, ALL)


def test_removed_records_of_a_first_batch_are_reported(reader, log):
    append_foreign(log, 0, *"ab")
    append_foreign(log, 0, *"cd")
    first = reader(startingoffsets="earliest")
    end = first.latestOffset(first.initialOffset(), ALL)
    log.trim(0, 2)
    again = reader(startingoffsets="earliest")
    start = again.initialOffset()
    with pytest.raises(TrimmedError, match="offsets 0 to 1"):
        again.partitions(start, end)
    careless = reader(startingoffsets="earliest", failondataloss="false")
    assert rows_in(careless, start, end) == [(0, 2), (0, 3)]


@pytest.mark.parametrize("strict", [True, False])
def test_records_removed_before_a_task_reads_are_reported(reader, log, strict):
    append_foreign(log, 0, *"ab")
    append_foreign(log, 0, *"cd")
    one = reader(startingoffsets="earliest", failondataloss=str(strict).lower())
    part = planned(one)
    log.trim(0, 2)
    if strict:
        with pytest.raises(TrimmedError, match="offsets 0 to 1"):
            list(one.read(part))
    else:
        (batch,) = one.read(part)
        assert batch.column("offset").to_pylist() == [2, 3]


@pytest.mark.parametrize("strict", [True, False])
def test_records_removed_during_a_read_are_reported(reader, log, strict):
    for values in ("ab", "c", "de", "f", "g"):
        append_foreign(log, 0, *values)
    one = reader(startingoffsets="earliest", failondataloss=str(strict).lower())
    part = planned(one)
    offsets = (offset for batch in one.read(part) for offset in batch.column("offset").to_pylist())
    assert [next(offsets), next(offsets), next(offsets)] == [0, 1, 2]
    log.trim(0, 5)
    if strict:
        with pytest.raises(TrimmedError, match="offsets 3 to 4"):
            next(offsets)
    else:
        assert next(offsets) == 5
        log.trim(0, 6)
        assert list(offsets) == [6]


@pytest.mark.parametrize("strict", [True, False])
def test_records_lost_before_a_task_reads_are_reported(reader, log, path, strict):
    append_foreign(log, 0, *"ab")
    append_foreign(log, 0, *"cd")
    one = reader(startingoffsets="earliest", failondataloss=str(strict).lower())
    part = planned(one)
    Path(path, paths.chunk(0, 2)).unlink()
    with pytest.raises(TruncatedError, match="ends at 2, but the read was planned up to offset 4: the log lost"):
        list(one.read(part))


def test_planned_batch_of_a_deleted_log_is_empty_if_loss_is_allowed(reader, log, path):
    append_foreign(log, 0, *"ab")
    first = reader(startingoffsets="earliest")
    end = first.latestOffset(first.initialOffset(), ALL)
    Path(path).rename(path + "-away")
    careless = reader(startingoffsets="earliest", failondataloss="false")
    assert careless.partitions(careless.initialOffset(), end) == []
    careless.prepareForTriggerAvailableNow()
    assert careless.latestOffset(end, ALL) == end
    with pytest.raises(LogNotFoundError):
        reader(startingoffsets="earliest").partitions({}, end)
    Path(path + "-away").rename(path)
    append_foreign(log, 0, *"c")
    back = reader()
    assert rows_in(back, end, back.latestOffset(end, ALL)) == [(0, 2)]


def test_a_log_that_never_was_there_is_no_loss(tmp_path):
    options = {"path": str(tmp_path / "nothing"), "startingoffsets": "earliest", "failondataloss": "false"}
    one = RecordsStreamReader(parse_read_stream(options), RECORDS)
    one.prepareForTriggerAvailableNow()
    with pytest.raises(LogNotFoundError, match="there is no topic nothing"):
        one.latestOffset(one.initialOffset(), ALL)


def test_available_now_ends_at_the_prepared_offsets(reader, log):
    append_foreign(log, 0, *"ab")
    one = reader(startingoffsets="earliest", minoffsetspertrigger="9")
    one.prepareForTriggerAvailableNow()
    append_foreign(log, 0, *"cd")
    start = one.initialOffset()
    end = one.latestOffset(start, one.getDefaultReadLimit())
    assert rows_in(one, start, end) == [(0, 0), (0, 1)]
    assert one.latestOffset(end, one.getDefaultReadLimit()) == end
    assert one.reportLatestOffset() == StreamOffsets.from_json(end).without_begin().to_json()
    at_the_latest = reader()
    at_the_latest.prepareForTriggerAvailableNow()
    append_foreign(log, 0, *"ef")
    start = at_the_latest.initialOffset()
    assert at_the_latest.latestOffset(start, ALL) == start
    assert at_the_latest.latestOffset(start, ALL) == start


def test_shorter_log_is_confirmed_by_a_second_read(reader, log, monkeypatch):
    append_foreign(log, 0, *"ab")
    one = reader(startingoffsets="earliest")
    end = one.latestOffset(one.initialOffset(), ALL)
    look = SelectedLogs.read
    stale = LogState(log.layout().log_id, 0, {0: Bounds(0, 1), 1: Bounds(0, 0)})
    answers = [{"flights": stale}]
    monkeypatch.setattr(SelectedLogs, "read", lambda *args, **more: answers.pop() if answers else look(*args, **more))
    again = reader()
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end, ALL) == end
    answers += [{"flights": stale}] * 2
    again.prepareForTriggerAvailableNow()
    with pytest.raises(TruncatedError, match="the log lost records"):
        again.latestOffset(end, ALL)


def test_partitions_without_new_records_cost_no_task(tmp_path):
    path = str(tmp_path / "wide")
    with open_log(path) as log:
        log.create(1000)
        append_foreign(log, 7, *"ab")
        append_foreign(log, 999, *"c")
    options = {"path": path, "startingoffsets": "earliest"}
    one = RecordsStreamReader(parse_read_stream(options), RECORDS)
    start = one.initialOffset()
    whole = parse_read(options)
    for tasks in (
        one.partitions(start, one.latestOffset(start, ALL)),
        RecordsReader(whole, RECORDS).partitions(),
    ):
        parts = [each for each in tasks if isinstance(each, RecordsPartition)]
        assert len(parts) == len(tasks)
        ranges = [(at.partition, len(offsets)) for each in parts for at, offsets in each.ranges]
        assert ranges == [(7, 2), (999, 1)]


def test_stream_lag():
    def at(**offsets):
        return json.dumps({"flights": {"log_id": "x", "layout_epoch": 0, "offsets": offsets}})

    source = {"endOffset": at(**{"0": 5, "1": 2}), "latestOffset": at(**{"0": 9, "1": 2, "2": 1})}
    lag = {at.partition: count for at, count in stream_lag(source).items()}
    assert lag == ({0: 4, 1: 0, 2: 1} if HAS_READ_LIMITS else {})
    assert stream_lag({"endOffset": at(**{"0": 5}), "latestOffset": None}) == {}


def test_stream_lag_the_first_batch(reader, log):
    append_foreign(log, 0, *"abcde")
    one = reader(startingoffsets="earliest", maxoffsetspertrigger="2")
    end = one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    told = {"endOffset": json.dumps(end), "latestOffset": json.dumps(one.reportLatestOffset())}
    assert sum(stream_lag(told).values()) == (3 if HAS_READ_LIMITS else 0)


def test_partitions_take_turns_through_restarts(tmp_path):
    """The limit is below the number of partitions, and one partition always has the most new records."""
    path = str(tmp_path / "turns")
    with open_log(path) as log:
        log.create(4)
        options = {"path": path, "startingoffsets": "earliest", "maxoffsetspertrigger": "2"}
        position, read = None, []
        for batch in range(6):
            append_foreign(log, 1, *"abcd")
            if batch == 0:
                for partition in (0, 2, 3):
                    append_foreign(log, partition, *"xyz")
            one = RecordsStreamReader(parse_read_stream(options), RECORDS)
            start = one.initialOffset() if position is None else json.loads(json.dumps(position))
            position = one.latestOffset(start, one.getDefaultReadLimit())
            read.append([partition for partition, _ in rows_in(one, start, position)])
    assert read == [[0, 1], [2, 3]] * 3


def test_a_narrower_selection_needs_its_own_option(tmp_path):
    path = str(tmp_path / "wide")
    with open_log(path) as log:
        log.create(2)

        def reader(*partitions, **more):
            assigned = json.dumps({"wide": partitions})
            options = {"path": path, "startingoffsets": "earliest", "assign": assigned, **more}
            return RecordsStreamReader(parse_read_stream(options), RECORDS)

        append_foreign(log, 0, *"ab")
        append_foreign(log, 1, *"cd")
        first = reader(0, 1)
        start = first.initialOffset()
        end = first.latestOffset(start, ALL)
        append_foreign(log, 0, "e")
        append_foreign(log, 1, "f")
        for more in ({}, {"failondataloss": "false"}):
            with pytest.raises(OptionError):
                reader(0, **more).latestOffset(end, ALL)
        narrower = reader(0, allowunsubscribedtopics="true")
        assert rows_in(narrower, start, end) == [(0, 0), (0, 1), (1, 0), (1, 1)], "the planned batch is the same"
        later = narrower.latestOffset(end, ALL)
        assert rows_in(narrower, end, later) == [(0, 2)]
        assert narrower.latestOffset(later, ALL) == later
        again = reader(0, 1)
        assert rows_in(again, later, again.latestOffset(later, ALL)) == [(1, 2)]


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark has no class for both limits before 4.2")
def test_limits_hold_unless_spark_wants_everything_at_once(reader, log):
    assert reader().getDefaultReadLimit() == ALL
    assert reader(minoffsetspertrigger="2").getDefaultReadLimit() == ReadMinRows(2)
    one = reader(startingoffsets="earliest", minoffsetspertrigger="2", maxoffsetspertrigger="3")
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxRows(3)
    start = one.initialOffset()
    assert one.latestOffset(start, limit) == start
    append_foreign(log, 0, *"a")
    assert one.latestOffset(start, limit) == start
    assert rows_in(one, start, one.latestOffset(start, ALL)) == [(0, 0)]
    append_foreign(log, 1, *"bcde")
    end = one.latestOffset(start, limit)
    assert rows_in(one, start, end) == [(0, 0), (1, 0), (1, 1)]
    assert one.reportLatestOffset() != end
