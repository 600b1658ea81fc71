import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import JobMismatchError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import NO_TOTALS, Appends
from spark_cas.core.plan import (
    BY_KEY,
    Completion,
    Layout,
    PartitionResult,
    Plan,
    Progress,
    Replacement,
    claim_of_keys,
    progress_lost,
    rejoin,
    resume_offset,
    trimmed_unseen,
)
from spark_cas.core.recorded_fields import from_json, to_json

END = ExpectedOffsets.parse("end")
NONE = ExpectedOffsets.parse("none")

TEXT = st.text(max_size=12)
OFFSETS = st.integers(0, 2**63 - 1)
PROGRESS = st.builds(
    Progress, TEXT, OFFSETS, OFFSETS, TEXT, OFFSETS, OFFSETS, OFFSETS, OFFSETS, st.booleans(), OFFSETS, TEXT
)
APPENDS = st.builds(Appends, OFFSETS, OFFSETS, st.none() | OFFSETS, st.booleans(), OFFSETS)
RESULTS = st.builds(PartitionResult, PROGRESS, OFFSETS, OFFSETS, APPENDS)
COMPLETIONS = st.builds(Completion, TEXT, TEXT, OFFSETS, st.lists(RESULTS, max_size=3).map(tuple), OFFSETS)
CLAIMS = st.lists(st.none() | OFFSETS, max_size=4).map(tuple)
REPLACED = st.lists(st.builds(Replacement, OFFSETS, OFFSETS, st.none() | OFFSETS), max_size=3).map(tuple)
OFFSETS_OF_ALL = st.lists(OFFSETS, max_size=4).map(tuple)
PLANS = st.builds(Plan, TEXT, TEXT, OFFSETS, CLAIMS, OFFSETS_OF_ALL, REPLACED, named=OFFSETS_OF_ALL)


def plan(*expected: int | None, ends: tuple[int, ...] | None = None) -> Plan:
    return Plan("load-1", "log", 0, expected, ends or tuple(each or 0 for each in expected))


def came_to(rows: int, end: int, *, complete: bool = False, partition: int = 0) -> Progress:
    return Progress("load-1", partition, rows, "digest", end - rows, end, 1, 0, complete, 0, "run/0")


class TestExpectedOffsets:
    @pytest.mark.parametrize(
        ("text", "ends", "claims"),
        [
            ("end", (3, 0), (3, 0)),
            (" END\n", (3, 0), (3, 0)),
            ("none", (3, 0), (None, None)),
            ("None", (3,), (None,)),
            ('{"0": 17}', (3, 5), (17, 5)),
            ('{"1": null}', (3, 5), (3, None)),
            ('{"1": 0, "0": 2}', (3, 5), (2, 0)),
            ('{"10": 4}', (0,) * 11, (0,) * 10 + (4,)),
            (f'{{"0": {2**63 - 1}}}', (0,), (2**63 - 1,)),
        ],
    )
    def test_good(self, text: str, ends: tuple[int, ...], claims: tuple[int | None, ...]):
        assert ExpectedOffsets.parse(text).resolve(ends) == claims

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "latest",
            "17",
            "[17]",
            "null",
            '"end"',
            "{}",
            '{"0": 17',
            "{0: 17}",
            '{"0": -1}',
            '{"0": 17.0}',
            '{"0": "17"}',
            '{"0": true}',
            '{"0": [1]}',
            '{"0": {"1": 2}}',
            '{"0": NaN}',
            f'{{"0": {2**63}}}',
            '{"-1": 3}',
            '{"a": 3}',
            '{"": 3}',
            '{" 0": 3}',
            '{"1.0": 3}',
            '{"00": 3}',
            '{"²": 3}',
            '{"٣": 3}',
            '{"0": 1, "0": 2}',
            '{"0": null, "0": 2}',
            '{"' + "1" * 5_000 + '": 3}',
            '{"0": ' + "1" * 5_000 + "}",
            "[" * 100_000,
        ],
    )
    def test_bad(self, text: str):
        with pytest.raises(OptionError, match=r"^\[OPTION\] (the )?expected offsets"):
            ExpectedOffsets.parse(text)

    @given(st.text(max_size=30))
    def test_any_text_is_read_or_refused(self, text: str):
        try:
            parsed = ExpectedOffsets.parse(text)
        except OptionError:
            return
        assert parsed.mode in ("end", "none", "offsets")

    def test_a_partition_that_the_log_has_not(self):
        with pytest.raises(OptionError, match=re.escape("name partition 3, but the log has 3 partitions (0 to 2)")):
            ExpectedOffsets.parse('{"0": 1, "3": 1}').resolve((0, 0, 0))


class TestResumeOffset:
    @pytest.mark.parametrize(
        ("first", "replaced", "progress", "expected"),
        [
            (5, (), None, 5),
            (5, (), came_to(4, 9), 9),
            (None, (), None, None),
            (None, (), came_to(4, 9), None),
            # new expected offsets apply to the row after those that the job had when they were given
            (5, (Replacement(0, 0, 7),), None, 7),
            (5, (Replacement(0, 4, 12),), came_to(4, 9), 12),
            (5, (Replacement(0, 4, 12),), came_to(6, 14), 14),
            (5, (Replacement(0, 4, 12),), None, 5),
            (5, (Replacement(1, 4, 12),), came_to(4, 9), 9),
            # from then on the partition stays with or without a check, also in later attempts
            (5, (Replacement(0, 4, None),), came_to(4, 9), None),
            (5, (Replacement(0, 4, None),), came_to(6, 14), None),
            (None, (Replacement(0, 4, 12),), came_to(4, 9), 12),
            (None, (Replacement(0, 4, 12),), came_to(6, 14), 14),
        ],
    )
    def test_by_example(
        self,
        first: int | None,
        replaced: tuple[Replacement, ...],
        progress: Progress | None,
        expected: int | None,
    ):
        job = replace(plan(first, 0), replaced=replaced)
        assert resume_offset(job, 0, progress) == expected


class TestRejoin:
    def test_end_never_computes_new_claims(self):
        first = plan(5, 7)
        again = rejoin(first, END, (came_to(4, 9), None))
        assert again == first
        assert resume_offset(again, 0, came_to(4, 9)) == 9
        assert resume_offset(again, 1, None) == 7

    def test_new_offsets_replace_those_of_incomplete_partitions(self):
        first = plan(5, 7, 0)
        progress = (came_to(4, 9), came_to(2, 9, complete=True, partition=1), None)
        again = rejoin(first, ExpectedOffsets.parse('{"0": 12, "1": 30, "2": 3}'), progress)
        assert resume_offset(again, 0, progress[0]) == 12
        assert resume_offset(again, 1, progress[1]) == 9
        assert resume_offset(again, 2, progress[2]) == 3
        assert (again.expected_offsets, again.end_offsets) == (first.expected_offsets, first.end_offsets)

    def test_run_names_its_partitions_and_those_of_the_first_run(self):
        first = replace(plan(5, 7, 0), named=(0, 1))
        again = rejoin(first, ExpectedOffsets.parse('{"1": null, "2": 3}'), (None, None, None))
        assert again.named == (0, 2)
        assert rejoin(first, END, (None, None, None)).named == (0, 1)
        by_key = replace(first, compare=BY_KEY, named=())
        assert rejoin(by_key, ExpectedOffsets.parse('{"0": 1}'), (None, None, None)).named == ()

    @given(
        given_offset=st.integers(0, 50),
        chunks=st.lists(st.integers(1, 9), max_size=4),
        first=st.integers(0, 50),
    )
    def test_same_offsets_resume(self, given_offset: int, chunks: list[int], first: int):
        """The job continued from the given offset. Wherever it was killed, the same command resumes it."""
        wanted = ExpectedOffsets.parse(f'{{"0": {given_offset}}}')
        job = rejoin(plan(first), wanted, (None,))
        progress: Progress | None = None
        end = given_offset
        for count in chunks:
            assert resume_offset(job, 0, progress) == end
            end += count
            progress = came_to(end - given_offset, end)
            job = rejoin(plan(first), wanted, (progress,))
        assert resume_offset(job, 0, progress) == end
        assert rejoin(plan(first), END, (progress,)).replaced == ()

    def test_first_plan_with_named_offsets_resumes_with_them(self):
        first = plan(17, ends=(17,))
        again = rejoin(first, ExpectedOffsets.parse('{"0": 17}'), (came_to(3, 20),))
        assert resume_offset(again, 0, came_to(3, 20)) == 20

    def test_a_partition_without_check_that_gets_one_keeps_it(self):
        first = plan(None, 5)
        wanted = ExpectedOffsets.parse('{"0": 25, "1": 5}')
        assert resume_offset(rejoin(first, wanted, (came_to(3, 20), None)), 0, came_to(3, 20)) == 25
        assert resume_offset(rejoin(first, wanted, (came_to(5, 27), None)), 0, came_to(5, 27)) == 27

    @pytest.mark.parametrize(
        ("first", "wanted"),
        [
            (plan(5), NONE),
            (plan(None), END),
            (plan(None, None), ExpectedOffsets.parse('{"0": 5}')),
            (plan(5), ExpectedOffsets.parse('{"0": null}')),
        ],
    )
    def test_a_job_is_not_continued_the_other_way(self, first: Plan, wanted: ExpectedOffsets):
        with pytest.raises(JobMismatchError, match="'load-1' was planned with"):
            rejoin(first, wanted, (None,) * first.partitions)

    @pytest.mark.parametrize("wanted", [NONE, ExpectedOffsets.parse('{"0": null}')])
    def test_a_job_without_check_stays_so(self, wanted: ExpectedOffsets):
        again = rejoin(plan(None), wanted, (came_to(3, 9),))
        assert resume_offset(again, 0, came_to(3, 9)) is None

    def test_a_partition_that_the_log_has_not(self):
        with pytest.raises(OptionError, match="name partition 2"):
            rejoin(plan(0, 0), ExpectedOffsets.parse('{"2": 1}'), (None, None))


@pytest.mark.parametrize(
    ("known_end", "expected", "start", "lost"),
    [
        (10, None, 0, False),
        (10, None, 10, False),  # all trimmed records are below the end that the writer knows
        (10, None, 11, True),
        (10, 10, 11, False),  # the expected offset decides: the result is Conflict
        (10, 30, 11, True),
        (10, 30, 30, True),
        (10, 30, 31, False),
        (10, 30, 10, False),
    ],
)
def test_trimmed_unseen(known_end: int, expected: int | None, start: int, lost: bool):
    assert trimmed_unseen(known_end, expected, start) is lost
    job = replace(plan(expected, ends=(known_end,)))
    assert progress_lost(job, 0, None, start) is lost
    assert progress_lost(job, 0, came_to(1, 5), start) is False


def test_a_layout_names_the_partitions_that_there_are():
    layout = Layout("log", 0, 3)
    for partition in (0, 1, 2):
        layout.require(partition)
    for partition in (-1, 3):
        with pytest.raises(ValueError, match=f"partition {partition} was named"):
            layout.require(partition)


@pytest.mark.parametrize(("expected", "checked"), [((None,), False), ((0,), True), ((None, 3), True)])
def test_a_plan_is_checked_when_any_partition_is(expected: tuple[int | None, ...], checked: bool):
    assert plan(*expected).checked is checked
    assert plan(*expected).partitions == len(expected)


@given(PROGRESS)
def test_progress_survives_json(progress: Progress):
    assert from_json(Progress, to_json(progress)) == progress
    assert from_json(Progress, to_json(progress).encode()) == progress


@given(PLANS)
def test_plans_survive_json(value: Plan):
    again = from_json(Plan, to_json(value))
    assert again == value
    assert hash(again) == hash(value)


@given(COMPLETIONS)
def test_completions_survive_json(completion: Completion):
    again = from_json(Completion, to_json(completion))
    assert again == completion
    assert again.rows == sum(result.progress.rows for result in completion.partitions)
    assert "\n" not in to_json(completion)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"job": 1}', "null", "17"])
def test_other_json_is_refused(text: str):
    for kind in (Plan, Progress, Completion):
        with pytest.raises((KeyError, TypeError, ValueError)):
            from_json(kind, text)


def test_entries_of_an_earlier_version_are_read():
    """Entries without the fields added later: no comparison by key, and no expected offsets of rows."""
    value = plan(0, None)
    before = Progress("job", 0, 3, "ab", 0, 3, 1, 0, complete=False, committed_at_ms=5, task="run/0")
    assert from_json(Plan, stored_without(value, "compare", "named")) == value
    assert from_json(Progress, stored_without(before, "least_expected", "own_ranges")) == before


def test_completion_of_an_earlier_version_has_no_appends():
    done = Completion("job", "log", 0, (PartitionResult(came_to(3, 3, complete=True), 1, 2),), 5)
    fields = json.loads(to_json(done))
    del fields["partitions"][0]["appends"]
    assert from_json(Completion, json.dumps(fields)) == done
    assert done.partitions[0].appends == NO_TOTALS


def stored_without(value: Plan | Progress, *names: str) -> str:
    fields = json.loads(to_json(value))
    for name in names:
        del fields[name]
    return json.dumps(fields)


def test_offsets_of_a_job_by_key_survive_json():
    progress = Progress("job", 0, 3, "ab", 0, 9, 2, 0, False, 5, "run/0", None, None, ((0, 2), (8, 9)))
    assert from_json(Progress, to_json(progress)) == progress


def test_job_by_key_expects_its_latest_offsets_per_row():
    by_key = replace(plan(7, None), compare=BY_KEY)
    progress = Progress("job", 0, 3, "ab", 7, 20, 1, 0, complete=False, committed_at_ms=5, task="run/0")
    assert resume_offset(by_key, 0, progress) is None
    assert (claim_of_keys(by_key, 0), claim_of_keys(by_key, 1)) == (7, None)
    again = rejoin(by_key, ExpectedOffsets.parse('{"0": 9}'), (progress, None))
    assert resume_offset(again, 0, progress) is None
    assert claim_of_keys(again, 0) == 9, "below its own end, because other writers may have appended in between"
