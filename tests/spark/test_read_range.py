"""Which offsets a read takes, as tables; no log and no JVM."""

import pytest

from spark_cas.core.errors import OptionError, TrimmedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.spark.read_range import EARLIEST, LATEST, ReadLimit, ReadRange

BOUNDS = (Bounds(5, 20), Bounds(0, 0))


def limit(first, second=-2):
    return ReadLimit.parse(f'{{"flights": {{"1": {second}, "0": {first}}}}}')


@pytest.mark.parametrize(
    ("starting", "ending", "found"),
    [
        (ReadLimit(EARLIEST), ReadLimit(LATEST), ((5, 20), (0, 0))),
        (ReadLimit(LATEST), ReadLimit(LATEST), ((20, 20), (0, 0))),
        (limit(7), ReadLimit(LATEST), ((7, 20), (0, 0))),
        (limit(5), limit(20, 0), ((5, 20), (0, 0))),
        (limit(-2), limit(9), ((5, 9), (0, 0))),
        (limit(-1), limit(-1), ((20, 20), (0, 0))),
        (limit(8), limit(8), ((8, 8), (0, 0))),
        (ReadLimit(EARLIEST), ReadLimit(EARLIEST), ((5, 5), (0, 0))),
    ],
)
def test_what_is_read(starting, ending, found):
    assert ReadRange(starting, ending).resolve("flights", BOUNDS) == tuple(OffsetRange(*each) for each in found)


@pytest.mark.parametrize(
    ("starting", "ending", "said"),
    [
        (limit(21), ReadLimit(LATEST), "startingOffsets says 21 for partition 0, which ends at 20"),
        (limit(5, 1), ReadLimit(LATEST), "says 1 for partition 1, which ends at 0"),
        (ReadLimit(EARLIEST), limit(21), "endingOffsets says 21"),
        (limit(9), limit(8), "startingOffsets lies behind endingOffsets"),
        (ReadLimit(LATEST), limit(8), "startingOffsets lies behind endingOffsets"),
        (ReadLimit.parse('{"flights": {"0": 5}}'), ReadLimit(LATEST), "each of its 2 partitions"),
        (ReadLimit.parse('{"flights": {"0": 5, "1": 0, "2": 0}}'), ReadLimit(LATEST), "each of its 2 partitions"),
        (ReadLimit.parse('{"other": {"0": 5, "1": 0}}'), ReadLimit(LATEST), "must name topic flights"),
    ],
)
def test_what_a_log_does_not_have_is_refused(starting, ending, said):
    with pytest.raises(OptionError) as refused:
        ReadRange(starting, ending).resolve("flights", BOUNDS)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("starting", "ending", "left"),
    [
        (limit(3), ReadLimit(LATEST), (5, 20)),
        (limit(0), limit(4), (5, 5)),
        (ReadLimit(EARLIEST), limit(4), (5, 5)),
        (limit(0), limit(5), (5, 5)),
    ],
)
def test_records_that_are_gone_are_an_error_unless_that_is_allowed(starting, ending, left):
    with pytest.raises(TrimmedError, match=r"partition 0: .* failOnDataLoss=false"):
        ReadRange(starting, ending).resolve("flights", BOUNDS)
    lenient = ReadRange(starting, ending, fail_on_data_loss=False)
    assert lenient.resolve("flights", BOUNDS)[0] == OffsetRange(*left)


def test_what_is_trimmed_while_it_is_read():
    wanted = OffsetRange(5, 10)
    assert ReadRange().kept(0, wanted, 5) == wanted
    with pytest.raises(TrimmedError):
        ReadRange().kept(0, wanted, 6)
    lenient = ReadRange(fail_on_data_loss=False)
    assert (lenient.kept(0, wanted, 6), lenient.kept(0, wanted, 12)) == (OffsetRange(6, 10), OffsetRange(12, 12))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "5",
        "[]",
        "{}",
        '{"flights": 5}',
        '{"flights": {"0": "5"}}',
        '{"flights": {"0": -3}}',
        '{"flights": {"0": 1.5}}',
        '{"flights": {"0": true}}',
        '{"flights": {"00": 1}}',
        '{"flights": {"0": 1, "0": 2}}',
        '{"flights": {"0": 1}, "other": {"0": 1}}',
        "[" * 5000,
    ],
)
def test_what_is_no_limit_is_refused(text):
    with pytest.raises(ValueError, match="earliest, latest, or JSON"):
        ReadLimit.parse(text)
