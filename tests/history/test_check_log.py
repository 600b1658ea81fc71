"""Each numbered property of the checker, with a log that satisfies it and logs that violate it."""

from dataclasses import replace

import pytest

from tests.history.check_log import CHANGED, check_log
from tests.history.made import append, at, numbers, read
from tests.history.operations import FAIL, INFO
from tests.history.records import Found, Record

GOOD = [
    append("a", 1, 2, {0: 0}, ranges={0: (0, 2)}),
    append("b", 3, 4, {0: 2}, ranges={0: (3, 5)}),
    append("c", 3, 5, {0: 2}, kind="CONFLICT"),
    append("d", 6, None, {0: 5}),
]
LOG = [*at(0, "a"), *at(3, "b")]


def test_log_as_reported_has_no_violation_even_with_gaps():
    assert numbers(GOOD, LOG) == set()
    assert numbers([*GOOD, read(7, {0: (9, LOG)})], LOG) == set()


def test_append_of_unknown_outcome_is_in_the_log_once_or_never():
    assert numbers(GOOD, [*LOG, *at(6, "d")]) == set()
    assert numbers(GOOD, [*LOG, *at(6, "d"), *at(8, "d")]) == {2}
    assert numbers(GOOD, [*LOG, *at(6, "d")[:1]]) == {4}


def test_1_offsets_increase_and_each_record_was_requested():
    assert 1 in numbers(GOOD, [*at(0, "a"), *at(1, "b")])
    assert numbers(GOOD, [*LOG, Found(9, Record("k", "x"))]) == {1}
    changed = Found(4, Record("other", "b/0/1"))
    assert numbers(GOOD, [*LOG[:3], changed]) >= {1, 3}
    assert 1 in numbers(GOOD, LOG, at(0, "d"))


def test_2_nothing_is_there_twice():
    assert 2 in numbers(GOOD, [*LOG, *at(7, "a")])


def test_3_acknowledged_append_is_at_its_reported_offsets():
    assert numbers(GOOD, LOG[:2]) >= {3}
    assert numbers(GOOD, [*at(0, "a"), *at(4, "b")]) == {3}


def test_3_each_attempt_reports_the_same_offsets():
    first = append("a", 1, 2, {0: 0}, ranges={0: (0, 2)})
    assert numbers([first, append("a", 3, 4, {0: 0}, ranges={0: (0, 2)})], at(0, "a")) == set()
    assert numbers([first, append("a", 3, 4, {0: 0}, ranges={0: (7, 9)})], at(0, "a")) == {3}
    assert numbers([first, append("a", 3, 4, {0: 0}, ranges={0: (0, 1)})], at(0, "a")) == {3}


def test_3_append_acknowledged_without_a_range_is_in_the_log():
    told = [replace(append("s", 1, 2, {0: None}, ranges={0: (0, 2)}), result={})]
    assert numbers(told, at(7, "s")) == set()
    assert 3 in numbers(told, at(7, "s")[:1])


def test_4_chunks_and_wholes_are_all_there_or_not_at_all():
    whole = [append("w", 1, None, {0: 0, 1: 0})]
    assert numbers(whole, at(0, "w"), at(0, "w", 1)) == numbers(whole, [], []) == set()
    assert numbers(whole, at(0, "w"), []) == {4}
    load = [append("l", 1, None, {0: 0}, counts={0: 5}, chunk_records=2)]
    for count in (0, 2, 4, 5):
        assert numbers(load, at(0, "l", count=5)[:count]) == set()
    assert numbers(load, at(0, "l", count=5)[:3]) == {4}
    assert numbers(load, at(0, "l", count=5)[2:4]) == {4}


def test_5_rejected_append_is_not_in_the_log():
    assert numbers(GOOD[2:], at(2, "c")) >= {5}
    unheard_then_refused = [append("a", 1, None, {0: 0}), append("a", 5, 6, {0: 0}, kind="CONFLICT")]
    first = append("b", 2, 3, {0: 0}, ranges={0: (0, 2)})
    assert numbers([*unheard_then_refused, first], at(0, "b")) == set()
    assert numbers([*unheard_then_refused, first], [*at(0, "b"), *at(2, "a")]) >= {5}
    fenced = [append("l", 1, 2, {0: 0}, kind="FENCED", counts={0: 4}, chunk_records=2)]
    assert numbers(fenced, at(0, "l", count=4)[:2]) == set()


def test_6_job_keeps_its_order_without_records_between():
    a, b = append("a", 1, None, {0: 0}), append("b", 1, None, {0: None})
    swapped = [Found(0, at(0, "a")[1].record), Found(1, at(0, "a")[0].record)]
    assert numbers([a], swapped) == {6}
    between = [at(0, "a")[0], *at(1, "b"), Found(3, at(0, "a")[1].record)]
    assert numbers([a, b], between) == {6}
    assert numbers([append("a", 1, None, {0: None}), b], between) == set()


def test_7_no_other_record_is_after_the_expected_offset():
    a, b = append("a", 1, None, {0: None}), append("b", 1, None, {0: 1})
    assert numbers([a, b], [*at(0, "a"), *at(2, "b")]) == {7}
    assert numbers([a, append("b", 1, None, {0: 2})], [*at(0, "a"), *at(5, "b")]) == set()
    assert numbers([append("b", 1, None, {0: 3})], at(2, "b")) == {7}


def test_7_by_key_only_records_of_the_key_count():
    a = append("a", 1, None, {0: None}, key="x")
    other = append("b", 1, None, {0: 0}, key="y", compare="key")
    same = append("b", 1, None, {0: 1}, key="x", compare="key")
    assert numbers([a, other], [*at(0, "a", key="x"), *at(2, "b", key="y")]) == set()
    assert numbers([a, same], [*at(0, "a", key="x"), *at(2, "b", key="x")]) == {7}


def test_7_expected_offset_applies_to_partitions_without_rows():
    first = append("a", 1, 2, {1: 0}, ranges={1: (0, 2)})
    late = append("w", 3, 4, {0: 0, 1: 0}, ranges={0: (0, 2)}, counts={0: 2})
    assert numbers([first, late], at(0, "w"), at(0, "a", 1)) == {7}
    at_once = append("w", 1, 4, {0: 0, 1: 0}, ranges={0: (0, 2)}, counts={0: 2})
    assert numbers([first, at_once], at(0, "w"), at(0, "a", 1)) == set()


def test_8_of_two_that_expected_the_same_one_is_there():
    a, b = append("a", 1, None, {0: 0}), append("b", 1, None, {0: 0})
    assert numbers([a, b], [*at(0, "a"), *at(2, "b")]) == {7, 8}


def test_9_append_that_ended_before_another_has_lower_offsets():
    a = append("a", 1, 2, {0: None}, ranges={0: (2, 4)})
    assert numbers([a, append("b", 3, None, {0: None})], [*at(0, "b"), *at(2, "a")]) == {9}
    assert numbers([a, append("b", 2, None, {0: None})], [*at(0, "b"), *at(2, "a")]) == set()


def test_10_a_conflict_is_one():
    refused = append("c", 1, 5, {0: 2}, kind="CONFLICT")
    assert numbers([refused], []) == {10}
    assert numbers([refused, append("a", 1, None, {0: 0})], at(0, "a")) == {10}
    assert numbers([refused, append("a", 1, None, {0: 0}, counts={0: 3})], at(0, "a", count=3)) == set()
    later = append("a", 6, None, {0: None}, counts={0: 3})
    assert numbers([refused, later], at(0, "a", count=3)) == {10}


@pytest.mark.parametrize("kind", ["TRUNCATED", "INPUT_CHANGED", "CHUNK_DAMAGED"])
def test_11_no_client_receives_a_loss(kind):
    assert numbers([append("a", 1, 2, {0: 0}, kind=kind)], []) == {11}


def test_11_unchecked_run_may_report_lost_progress():
    lost = append("a", 3, 4, {0: None}, kind="PROGRESS_LOST")
    unheard = append("a", 1, None, {0: None})
    assert numbers([unheard, lost], []) == set()
    assert numbers([lost], []) == {11}
    expecting = [append("a", 1, None, {0: 0}), append("a", 3, 4, {0: 0}, kind="PROGRESS_LOST")]
    assert numbers(expecting, []) == {11}
    acknowledged = append("a", 1, 2, {0: None}, ranges={0: (0, 2)})
    assert 11 in numbers([acknowledged, lost], at(0, "a"))


def test_12_reader_sees_the_end_of_acknowledged_appends():
    assert numbers([*GOOD, read(7, {0: (2, LOG[:2])})], LOG) == {12}
    assert numbers([*GOOD, read(2, {0: (2, LOG[:2])})], LOG) == set()


def test_13_reader_saw_records_of_the_log():
    for seen in (LOG[:3], [*LOG, *at(6, "d")], [*LOG[:3], Found(4, Record("k", "other"))]):
        assert numbers([*GOOD, read(7, {0: (9, seen)})], LOG) == {13}


def test_14_a_reader_sees_wholes_as_wholes():
    history = [append("w", 1, None, {0: 0, 1: 0, 2: 0})]
    log = [at(0, "w"), at(0, "w", 1), at(0, "w", 2)]
    nothing: tuple[int, list[Found]] = (0, [])
    for seen in ([2, 2, 2], [0, 0, 0]):
        ends = {p: (end, log[p][:end]) for p, end in enumerate(seen)}
        assert numbers([*history, read(2, ends)], *log) == set()
    torn = read(2, {0: (2, log[0]), 1: nothing, 2: (2, log[2])})
    assert numbers([*history, torn], *log) == {14}
    assert "job w" in str(check_log([*history, torn], dict(enumerate(log)))[0])


def test_14_applies_to_the_partitions_that_a_reader_read():
    """The reader read the layout before the log got another partition."""
    history = [append("w", 1, None, {0: 0, 1: 0}), append("v", 1, None, {0: 2, 1: 2, 2: 0})]
    log = [[*at(0, "w"), *at(2, "v")], [*at(0, "w", 1), *at(2, "v", 1)], at(0, "v", 2)]
    for seen in ([0, 0], [2, 2], [4, 4]):
        assert numbers([*history, read(2, {p: (end, log[p][:end]) for p, end in enumerate(seen)})], *log) == set()
    for seen in ([2, 0], [4, 2]):
        assert numbers([*history, read(2, {p: (end, log[p][:end]) for p, end in enumerate(seen)})], *log) == {14}
    torn = read(2, {0: (2, log[0][:2]), 1: (0, [])})
    assert "job w" in str(check_log([*history, torn], dict(enumerate(log)))[0])


def test_15_other_records_of_a_job_are_refused():
    a = append("a", 1, 2, {0: 0}, ranges={0: (0, 2)})
    other = replace(append("a", 3, 4, {0: 0}, ranges={0: (0, 2)}, records={"0": [["k", "x"]]}), name=CHANGED)
    assert numbers([a, replace(other, outcome=FAIL, result={"kind": "INPUT_CHANGED"})], at(0, "a")) == set()
    assert numbers([a, other], at(0, "a")) == {15}
    assert numbers([a, replace(other, outcome=INFO)], [*at(0, "a"), Found(2, Record("k", "x"))]) == {1}


def test_records_that_two_jobs_send_are_no_history():
    twice = [append("a", 1, 2, {0: 0}), append("b", 1, 2, {0: 0})]
    twice[1] = append("b", 1, 2, {0: 0}, records=twice[0].arguments["records"])
    with pytest.raises(ValueError, match="jobs a and b"):
        check_log(twice, {0: []})


def test_attempts_of_one_job_have_the_same_arguments():
    with pytest.raises(ValueError, match="attempts of job a have different arguments"):
        check_log([append("a", 1, 2, {0: 0}), append("a", 3, 4, {0: 1})], {0: []})
