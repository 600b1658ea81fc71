import pytest

from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    FencedError,
    Fields,
    LayoutChangedError,
    ProgressLostError,
    TruncatedError,
    UnknownOutcomeError,
    error_from_text,
)
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import (
    Appended,
    Conflict,
    Fenced,
    KeyConflict,
    LayoutChanged,
    ProgressLost,
    Refusal,
    RowConflict,
    Truncated,
    Unknown,
    error_of,
    mismatch_error,
    not_appended,
    raise_for_outcome,
    rows_in_log_text,
)

APPENDED = Appended(OffsetRange(3, 5), 2, None, 0, has_offset=True, resolved=False)


def test_an_append_passes_through():
    assert raise_for_outcome(APPENDED, 0) is APPENDED


@pytest.mark.parametrize(
    ("outcome", "error", "fields", "says"),
    [
        (
            Conflict(7, 9, 0),
            ConflictError,
            {"expected_offset": 7, "actual_offset": 9, "next_offsets": {4: 9}},
            ["expected offset 7", "ends at 9", "from offset 7", "write with expected offset 9.", "Nothing"],
        ),
        (
            Conflict(7, 20, 12),
            ConflictError,
            {"expected_offset": 7, "actual_offset": 20, "next_offsets": {4: 20}},
            ["Offsets 7 to 11 were trimmed", "from offset 12", "write with expected offset 20."],
        ),
        (
            RowConflict(3, 7, 9, truncated=False),
            ConflictError,
            {"row": 3, "expected_offset": 7, "actual_offset": 9},
            ["row 3 of the job expects offset 7, but would get 9", "another writer appended", "Nothing of its"],
        ),
        (
            KeyConflict(3, "N1", 7, 9, 12),
            ConflictError,
            {"row": 3, "expected_offset": 7, "actual_offset": 9},
            [
                "row 3 of the job expects that key N1 has no record from offset 7 on, but it has one at 9",
                "to offset 12",
            ],
        ),
        (
            KeyConflict(3, "N1", 7, None, 12),
            ConflictError,
            {"row": 3, "expected_offset": 7},
            ["from offset 7 on, but this cannot be proven: retention or compaction may have removed records"],
        ),
        (
            RowConflict(3, 9, 7, truncated=False),
            ConflictError,
            {"row": 3, "expected_offset": 9, "actual_offset": 7},
            ["would get 7: the row's number is too high"],
        ),
        (
            RowConflict(3, 9, 7, truncated=True),
            TruncatedError,
            {"row": 3, "expected_offset": 9, "actual_offset": 7},
            ["would get 7: the log lost records that the writer read"],
        ),
        (
            Truncated(7, 5),
            TruncatedError,
            {"expected_offset": 7, "actual_offset": 5},
            ["expected offset 7", "ends at 5", "Nothing of this chunk is in the log"],
        ),
        (Fenced("run-2/4"), FencedError, {}, ["(run-2/4)", "run the same job again"]),
        (Fenced(None), FencedError, {}, ["another job that expects an offset, has claimed the partition"]),
        (ProgressLost("load-1"), ProgressLostError, {"job": "load-1"}, ["'load-1'", "new job name"]),
        (
            LayoutChanged(0, 1),
            LayoutChangedError,
            {},
            ["layout epoch 0", "epoch 1", "give spark_cas.route the options of the write"],
        ),
        (
            Unknown("timed out"),
            UnknownOutcomeError,
            {},
            ["the commit status of the last chunk is unknown: timed out", "Run the same job again"],
        ),
    ],
)
def test_each_refusal_says_what_was_found_and_what_to_do(
    outcome: Refusal | Unknown, error: type[ConditionalLogError], fields: Fields, says: list[str]
):
    with pytest.raises(error) as raised:
        raise_for_outcome(outcome, 4)
    text = str(raised.value)
    assert text.startswith(f"[{error.kind}] partition 4: ")
    for each in says:
        assert each in text
    assert raised.value.fields == {"partition": 4, **fields}
    assert str(error_of(outcome, 4)) == text
    assert str(error_from_text(f"{text}\n\tat java")) == text


def test_a_conflict_with_nothing_trimmed_does_not_speak_of_trimming():
    assert "trimmed" not in str(error_of(Conflict(7, 9, 7), 0))


def test_all_partitions_that_differ_are_one_error_with_all_that_it_takes_to_go_on():
    found = {12: Conflict(7, 20, 12), 3: Conflict(0, 9, 0)}
    error = mismatch_error("j", found, {3: 9, 5: None, 12: 20}, "2 rows are there.")
    assert isinstance(error, ConflictError)
    assert error.fields == {"job": "j", "next_offsets": {3: 9, 5: None, 12: 20}}
    assert error.message == (
        "partition 3: expected offset 0 to be the end, but the log ends at 9; partition 12: expected offset 7 to be "
        "the end, but the log ends at 20 (offsets 7 to 11 were trimmed): another writer "
        "appended. 2 rows are there. Read the new records, then run the same job again with the expected "
        "offsets in next_offsets."
    )


def test_where_records_are_gone_no_offsets_are_given_to_go_on_with():
    error = mismatch_error("j", {0: Conflict(0, 9, 0), 3: Truncated(7, 5)}, {0: 9, 3: 5}, "Nothing was appended.")
    assert isinstance(error, TruncatedError)
    assert error.message.startswith("partition 3: expected offset 7, but the log ends at 5: the log lost records")
    assert error.fields == {"partition": 3, "expected_offset": 7, "actual_offset": 5, "job": "j"}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (0, "No row of job 'j' is in the log."),
        (7, "7 rows of job 'j' are in the log and stay. Another job name would append them again."),
        (None, "The number of rows of job 'j' in the log is unknown. Another job name would append them again."),
    ],
)
def test_what_is_in_the_log_of_a_job_is_told_with_what_another_name_would_do(rows: int | None, told: str):
    assert rows_in_log_text("j", rows) == told


def test_a_chunk_that_did_not_come_to_be_appended_is_no_unknown_outcome():
    assert str(not_appended(3, "why")).startswith(
        "[STORAGE] partition 3: nothing of this chunk is in the log: why. Run"
    )
