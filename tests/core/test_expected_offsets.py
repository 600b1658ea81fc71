import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Conflict, Truncated


@pytest.mark.parametrize(
    ("expected", "bounds", "next_record", "answer"),
    [
        # the end matches
        (0, (0, 0), None, None),
        (10, (0, 10), None, None),
        (10, (4, 10), None, None),
        (10, (10, 10), None, None),
        # a record at or after the expected offset
        (9, (0, 10), 9, Conflict(9, 10, 0)),
        (0, (0, 10), 0, Conflict(0, 10, 0)),
        (3, (0, 10), 7, Conflict(3, 10, 0)),
        # a gap without records below the end: transaction markers, aborted batches
        (9, (0, 10), None, None),
        (4, (4, 10), None, None),
        # the expected offset is below the log start: records may have been trimmed unread, with a gap or without
        (3, (4, 10), None, Conflict(3, 10, 4)),
        (3, (4, 10), 4, Conflict(3, 10, 4)),
        (9, (10, 10), None, Conflict(9, 10, 10)),
        # the log lost records that the writer has read
        (11, (0, 10), None, Truncated(11, 10)),
        (1, (0, 0), None, Truncated(1, 0)),
        # no check
        (None, (0, 10), None, None),
        (None, (4, 10), 4, None),
    ],
)
def test_the_one_rule(
    expected: int | None,
    bounds: tuple[int, int],
    next_record: int | None,
    answer: Conflict | Truncated | None,
):
    assert check_expected(expected, Bounds(*bounds), next_record) == answer


@given(st.sets(st.integers(0, 30)), st.integers(0, 35), st.integers(0, 3), st.integers(0, 30))
def test_expected_offset_matches_if_no_record_is_at_or_after_it(
    records: set[int], expected: int, gap: int, start: int
):
    end = max([*records, start - 1]) + 1 + gap
    kept = sorted(offset for offset in records if offset >= max(expected, start))
    answer = check_expected(expected, Bounds(start, end), kept[0] if kept else None)
    if expected > end:
        assert answer == Truncated(expected, end)
    elif expected >= start and not any(offset >= expected for offset in records):
        assert answer is None
    else:
        assert answer == Conflict(expected, end, start)
