"""The position of a stream and the offsets of its next batch, as tables; no log and no JVM."""

import json

import pytest

from spark_cas.core.errors import FormatError, LogNotFoundError, OptionError, TrimmedError, TruncatedError
from spark_cas.core.offsets import Bounds
from spark_cas.log.spec import LogSpec
from spark_cas.options.read_range import TopicPartition
from spark_cas.options.request import Selection
from spark_cas.spark.reading.selected_logs import LogState
from spark_cas.spark.reading.stream_offsets import LogOffsets, StreamOffsets, advanced, available, between


def state(*bounds, log_id="A", epoch=2):
    return LogState(log_id, epoch, {at: Bounds(*each) for at, each in enumerate(bounds)})


def stream(*offsets, log_id="A", epoch=2, topic="flights"):
    return StreamOffsets({topic: LogOffsets(log_id, epoch, dict(enumerate(offsets)))})


def parts(ranges):
    return [(at.topic, at.partition, each.base_offset, each.end_offset) for at, each in ranges.items()]


SEEN = {"flights": state((0, 10), (5, 20))}


@pytest.mark.parametrize(
    ("start", "seen", "found"),
    [
        (stream(0, 5), SEEN, [(0, 0, 10), (1, 5, 20)]),
        (stream(10, 20), SEEN, [(0, 10, 10), (1, 20, 20)]),
        (stream(7, 6), SEEN, [(0, 7, 10), (1, 6, 20)]),
        (stream(7), {"flights": state((0, 10), (0, 3))}, [(0, 7, 10), (1, 0, 3)]),
        (stream(7, epoch=1), {"flights": state((0, 10), (0, 3))}, [(0, 7, 10), (1, 0, 3)]),
    ],
)
def test_available_ranges(start, seen, found):
    ranges = available(start, seen, fail_on_data_loss=True)
    assert parts(ranges) == [("flights", *each) for each in found]


def test_a_topic_that_is_new_is_read_from_its_start():
    seen = {**SEEN, "more": state((0, 3), log_id="B")}
    assert parts(available(stream(10, 20), seen, fail_on_data_loss=True))[2:] == [("more", 0, 0, 3)]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("start", "said"),
    [
        (stream(0, 5, log_id="B"), "topic flights was deleted and recreated"),
        (stream(11, 5), "partition 0 of topic flights ends at 10, and the stream has read it up to 11"),
        (stream(0, 5, epoch=3), "partitions were removed"),
    ],
)
def test_another_or_a_shorter_log_is_an_error_in_any_case(start, said, strict):
    with pytest.raises(TruncatedError) as refused:
        available(start, SEEN, fail_on_data_loss=strict)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("start", "kind", "said", "left"),
    [
        (stream(0, 3), TrimmedError, "the read begins with offsets 3 to 4", [(0, 0, 10), (1, 5, 20)]),
        (stream(0), TrimmedError, "the read begins with offsets 0 to 4", [(0, 0, 10), (1, 5, 20)]),
        (stream(0, 5, 9), LogNotFoundError, "has read partitions 2, which", [(0, 0, 10), (1, 5, 20)]),
        (stream(0, topic="gone"), LogNotFoundError, "topic gone", [(0, 0, 10), (1, 5, 20)]),
    ],
)
def test_data_loss_is_an_error_unless_allowed(start, kind, said, left):
    with pytest.raises(kind) as refused:
        available(start, SEEN, fail_on_data_loss=True)
    assert said in str(refused.value)
    assert parts(available(start, SEEN, fail_on_data_loss=False)) == [("flights", *each) for each in left]


def test_where_a_batch_ends():
    start = stream(0, 5)
    ranges = available(start, SEEN, fail_on_data_loss=True)
    assert advanced(start, SEEN, ranges, None) == stream(10, 20)
    assert advanced(start, SEEN, ranges, 5) == stream(2, 8)
    done = stream(10, 20)
    assert advanced(done, SEEN, available(done, SEEN, fail_on_data_loss=True), 5) == done
    lost = available(stream(0, 0), SEEN, fail_on_data_loss=False)
    assert advanced(stream(0, 0), SEEN, lost, 5) == stream(2, 8)


def test_partition_absent_in_one_read_is_not_read_twice():
    both = {**SEEN, "more": state((0, 3), log_id="B")}
    start = StreamOffsets(stream(7, 20).logs | stream(2, log_id="B", topic="more").logs)
    without = {"flights": LogState("A", 2, {0: Bounds(0, 10)})}
    end = advanced(start, without, available(start, without, fail_on_data_loss=False), None)
    assert end == StreamOffsets(stream(10, 20).logs | stream(2, log_id="B", topic="more").logs)
    assert parts(between(start, end)) == [("flights", 0, 7, 10)]
    assert advanced(end, {}, available(end, {}, fail_on_data_loss=False), None) == end
    back = available(end, both, fail_on_data_loss=True)
    assert parts(back) == [("flights", 0, 10, 10), ("flights", 1, 20, 20), ("more", 0, 2, 3)]


def test_partitions_that_the_options_no_longer_select_are_an_error_unless_that_is_allowed():
    start = StreamOffsets(stream(7, 20).logs | stream(2, log_id="B", topic="more").logs)

    def selected(*topics, assigned=(), pattern=None, allow=True):
        selection = Selection(LogSpec.parse("/data/logs/flights", {}), topics, pattern, assigned)
        return start.selected(selection.selects, allow_unsubscribed=allow)

    assert selected("flights", "more", allow=False) == start
    assert selected(pattern="flights|mor.", allow=False) == start
    assert selected("flights") == selected(pattern="fl.*") == stream(7, 20)
    assert selected("flights", assigned=(TopicPartition("flights", 0),)) == stream(7)
    for narrower in (
        {"pattern": "more"},
        {"pattern": "flight"},
        {"assigned": (TopicPartition("flights", 0), TopicPartition("more", 0))},
    ):
        with pytest.raises(OptionError):
            selected("flights", "more", allow=False, **narrower)
    with pytest.raises(OptionError):
        selected("flights", allow=False)


def test_an_unselected_topic_keeps_its_offset():
    start = StreamOffsets(stream(7, 20).logs | stream(2, log_id="B", topic="more").logs)
    ranges = available(stream(7, 20), SEEN, fail_on_data_loss=True)
    end = advanced(start, SEEN, ranges, None)
    assert end == StreamOffsets(stream(10, 20).logs | stream(2, log_id="B", topic="more").logs)


def test_partitions_take_turns_below_the_limit_of_one_each():
    seen = {"flights": state((0, 100), (0, 100), (0, 100), (0, 1))}
    position, turns = stream(0, 0, 0, 0), []
    for _ in range(8):
        start = StreamOffsets.from_json(json.loads(json.dumps(position.to_json())))
        position = advanced(start, seen, available(start, seen, fail_on_data_loss=True), 1)
        turns += [at.partition for at in between(start, position)]
    assert turns == [0, 1, 2, 3, 0, 1, 2, 0]


def test_ranges_of_a_batch():
    assert parts(between(stream(0, 5), stream(2, 5))) == [("flights", 0, 0, 2)]
    assert parts(between(stream(0), stream(0, 3))) == [("flights", 1, 0, 3)]
    assert between(StreamOffsets({}), StreamOffsets({})) == {}


def test_end_of_the_first_batch_has_the_start_of_the_stream():
    first = StreamOffsets.first(SEEN, {TopicPartition("flights", 0): 3, TopicPartition("flights", 1): 6})
    seen = {"flights": state((0, 10), (5, 20), (0, 2)), "more": state((0, 1), log_id="B")}
    end = advanced(first, seen, available(first, seen, fail_on_data_loss=True), 5)
    assert [log.begin for log in end.logs.values()] == [{0: 3, 1: 6, 2: 0}, {0: 0}]
    recorded = StreamOffsets.from_json(json.loads(json.dumps(end.to_json())))
    assert recorded == end
    held = between(first, end)
    assert held
    # The starts that a later call may find: moved by retention, by new records, by new topics.
    for again in (stream(4, 9, 1), stream(10, 20), StreamOffsets({}), StreamOffsets.first(seen, moved(seen))):
        assert between(again, recorded) == held
    second = advanced(recorded, seen, available(recorded, seen, fail_on_data_loss=True), None)
    assert [log.begin for log in second.logs.values()] == [None, None]
    assert between(recorded, second)[TopicPartition("flights", 1)].end_offset == 20


def moved(seen):
    """Return a start at the end of every partition."""
    return {
        TopicPartition(topic, at): each.end_offset for topic, log in seen.items() for at, each in log.bounds.items()
    }


def test_a_batch_that_brings_nothing_ends_where_it_began_to_the_letter():
    first = StreamOffsets.first(SEEN, moved(SEEN))
    assert advanced(first, SEEN, available(first, SEEN, fail_on_data_loss=True), None) == first
    early = StreamOffsets.first(SEEN, {TopicPartition("flights", 0): 3, TopicPartition("flights", 1): 6})
    end = advanced(early, SEEN, available(early, SEEN, fail_on_data_loss=True), None)
    assert end.logs["flights"].begin == {0: 3, 1: 6}
    assert advanced(end, SEEN, available(end, SEEN, fail_on_data_loss=True), None) == end


def test_offsets_are_written_in_one_order():
    logs = {
        "b": LogOffsets("B", 1, {0: 4}),
        "a": LogOffsets("A", 12, {each: each for each in (10, 2, 0)}),
    }
    text = json.dumps(StreamOffsets(logs).to_json())
    assert text == (
        '{"a": {"log_id": "A", "layout_epoch": 12, "offsets": {"0": 0, "2": 2, "10": 10}}, '
        '"b": {"log_id": "B", "layout_epoch": 1, "offsets": {"0": 4}}}'
    )
    assert StreamOffsets.from_json(json.loads(text)) == StreamOffsets(logs)
    assert json.dumps(StreamOffsets.from_json(json.loads(text)).to_json()) == text


@pytest.mark.parametrize(
    "read",
    [
        {"flights": {"0": 5}},
        {"flights": 5},
        {"flights": {"log_id": "A", "offsets": []}},
        {"flights": {"log_id": "A", "layout_epoch": 0, "offsets": {}, "begin": 5}},
        [],
    ],
)
def test_checkpoint_of_another_source_is_rejected(read):
    with pytest.raises(FormatError, match="new checkpoint"):
        StreamOffsets.from_json(read)


def test_offsets_of_every_partition():
    assert stream(3, 4).by_partition() == {TopicPartition("flights", 0): 3, TopicPartition("flights", 1): 4}
    assert StreamOffsets.at(SEEN, {TopicPartition("flights", 0): 3, TopicPartition("flights", 1): 4}) == stream(3, 4)
