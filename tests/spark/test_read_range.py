"""The offsets that a read selects, as tables; no log and no JVM."""

import pytest

from spark_cas.core.errors import OptionError, TrimmedError, TruncatedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.options.read_range import (
    EARLIEST,
    LATEST,
    ReadLimit,
    ReadRange,
    TopicPartition,
    kept,
    parse_offsets,
    parse_times,
)

FIRST, SECOND = TopicPartition("flights", 0), TopicPartition("flights", 1)
BOUNDS = {FIRST: Bounds(5, 20), SECOND: Bounds(0, 0)}


def since(at, time_ms):
    """Return the offset of the first record at or after a time.

    Record N has the time 100 + N. The records 0 to 4 were trimmed, and 20 to 24 were appended after the bounds were
    read.
    """
    assert at in BOUNDS
    return max(0, time_ms - 100) if time_ms < 125 and at == FIRST else None


def starting(wanted, **times):
    return ReadLimit("startingOffsets", parse_offsets(wanted) if isinstance(wanted, str) else wanted, **times)


def ending(wanted, **times):
    return ReadLimit("endingOffsets", parse_offsets(wanted) if isinstance(wanted, str) else wanted, **times)


def both(first, second=-2):
    return f'{{"flights": {{"1": {second}, "0": {first}}}}}'


def time(first, second=0, **other):
    return {"wanted": ((FIRST, first), (SECOND, second)), "timed": True, **other}


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (starting(EARLIEST), ending(LATEST), ((5, 20), (0, 0))),
        (starting(LATEST), ending(LATEST), ((20, 20), (0, 0))),
        (starting(both(7)), ending(LATEST), ((7, 20), (0, 0))),
        (starting(both(5)), ending(both(20, 0)), ((5, 20), (0, 0))),
        (starting(both(-2)), ending(both(9)), ((5, 9), (0, 0))),
        (starting(both(-1)), ending(both(-1)), ((20, 20), (0, 0))),
        (starting(both(8)), ending(both(8)), ((8, 8), (0, 0))),
        (starting(EARLIEST), ending(EARLIEST), ((5, 5), (0, 0))),
        (starting(both(3)), ending(both(3)), ((5, 5), (0, 0))),
        (starting(EARLIEST), ending(both(0)), ((5, 5), (0, 0))),
        (starting(**time(107, or_latest=True)), ending(LATEST), ((7, 20), (0, 0))),
        (starting(**time(102, or_latest=True)), ending(LATEST), ((5, 20), (0, 0))),
        (starting(**time(122, or_latest=True)), ending(LATEST), ((20, 20), (0, 0))),
        (starting(**time(190, or_latest=True)), ending(LATEST), ((20, 20), (0, 0))),
        (starting(107, timed=True, or_latest=True), ending(109, timed=True, or_latest=True), ((7, 9), (0, 0))),
        (starting(both(6)), ending(190, timed=True, or_latest=True), ((6, 20), (0, 0))),
    ],
)
def test_range_of_a_read(start, end, found):
    ranges = ReadRange(start, end).resolve(BOUNDS, since)
    assert list(ranges.items()) == list(zip(BOUNDS, (OffsetRange(*each) for each in found), strict=True))


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (
            starting(both(21)),
            ending(LATEST),
            "is 21 for partition 0 of topic flights, which ends at 20",
        ),
        (starting(both(5, 1)), ending(LATEST), "is 1 for partition 1 of topic flights, which ends at 0"),
        (starting(EARLIEST), ending(both(21)), "endingOffsets is 21"),
        (starting(both(9)), ending(both(8)), "startingOffsets is after endingOffsets"),
        (starting(LATEST), ending(both(8)), "startingOffsets is after endingOffsets"),
        (starting(both(4)), ending(both(3)), "startingOffsets is after endingOffsets"),
        (starting('{"flights": {"0": 5}}'), ending(LATEST), "topic flights (0 to 1). It names topic flights (0)."),
        (starting('{"flights": {"0": 5, "1": 0, "3": 0}}'), ending(LATEST), "It names topic flights (0, 1, 3)."),
        (
            starting('{"other": {"0": 5, "1": 0}}'),
            ending(LATEST),
            "other: topic flights (0 to 1). It names topic other",
        ),
        (starting(**time(122)), ending(LATEST), "122 ms since 1970, but all records of"),
        (starting(107, timed=True), ending(LATEST), "startingOffsetsByTimestampStrategy=latest"),
        (starting(107, timed=True, or_latest=True), ending(both(6)), "startingOffsets is after endingOffsets"),
    ],
)
def test_offset_outside_the_log_is_rejected(start, end, said):
    with pytest.raises(OptionError) as refused:
        ReadRange(start, end).resolve(BOUNDS, since)
    assert said in str(refused.value)


def test_log_that_ends_before_a_known_offset_lost_records():
    with pytest.raises(TruncatedError, match="ends at 20, but the read was planned up to offset 21"):
        ReadRange(starting(EARLIEST), ending(both(21)), known=True).resolve(BOUNDS, since)


def test_partitions_of_several_topics():
    other = TopicPartition("delays", 3)
    offsets = starting('{"flights": {"0": 6}, "delays": {"3": -1}}')
    ranges = ReadRange(offsets).resolve({other: Bounds(0, 4), FIRST: Bounds(5, 20)}, since)
    assert ranges == {other: OffsetRange(4, 4), FIRST: OffsetRange(6, 20)}


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (starting(both(3)), ending(LATEST), (5, 20)),
        (starting(both(0)), ending(both(4)), (5, 5)),
        (starting(EARLIEST), ending(both(4)), (5, 5)),
        (starting(both(0)), ending(both(5)), (5, 5)),
    ],
)
def test_records_that_are_gone_are_an_error_unless_that_is_allowed(start, end, left):
    with pytest.raises(TrimmedError, match=r"partition 0 of topic flights: .* failOnDataLoss=false"):
        ReadRange(start, end).resolve(BOUNDS, since)
    lenient = ReadRange(start, end, fail_on_data_loss=False)
    assert lenient.resolve(BOUNDS, since)[FIRST] == OffsetRange(*left)


def test_trim_during_a_read():
    wanted = OffsetRange(5, 10)
    assert kept(FIRST, wanted, 5, fail_on_data_loss=True) == wanted
    with pytest.raises(TrimmedError):
        kept(FIRST, wanted, 6, fail_on_data_loss=True)
    assert [kept(FIRST, wanted, start, fail_on_data_loss=False) for start in (6, 12)] == [
        OffsetRange(6, 10),
        OffsetRange(12, 12),
    ]


NO_JSON = ["", "first", "5", "[]", "{}", '{"flights": 5}', '{"flights": {}}', '{"flights": {"0": 1.5}}', "[" * 5000]


@pytest.mark.parametrize(
    "text",
    [
        *NO_JSON,
        '{"flights": {"0": "5"}}',
        '{"flights": {"0": -3}}',
        '{"flights": {"0": true}}',
        '{"flights": {"00": 1}}',
        '{"flights": {"0": 1, "0": 2}}',
        '{"flights": {"0": 1}, "flights": {"0": 1}}',
    ],
)
def test_invalid_limit_is_rejected(text):
    with pytest.raises(ValueError, match="earliest, latest, or JSON"):
        parse_offsets(text)


@pytest.mark.parametrize("text", [*NO_JSON, "latest", '{"flights": {"0": -1}}'])
def test_invalid_timestamps_are_rejected(text):
    with pytest.raises(ValueError, match="milliseconds since 1970"):
        parse_times(text)
