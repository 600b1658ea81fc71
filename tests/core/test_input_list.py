"""Input lists: their digest, their record in the registry, and the difference that an error names."""

import json

import pytest

from spark_cas.core.input_list import (
    MOST_RECORDED,
    InputFile,
    InputList,
    RecordedInput,
    digested_arguments,
    first_difference,
)

A, B = InputFile("file:/in/a.csv", 10, 1_000), InputFile("file:/in/b.csv", 20, 1_000)
LIST = InputList((A, B), digested_arguments({"--key": "id", "--schema": None}))


def recorded(input_list):
    return RecordedInput.from_json(input_list.to_json())


def test_record_holds_files_and_no_argument_value():
    found = recorded(LIST)
    assert (found.count, found.bytes, found.files) == (2, 30, (A, B))
    assert found.arguments == LIST.arguments
    assert [name for name, _ in found.arguments] == ["--key"]
    assert '"id"' not in LIST.to_json()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (InputList((A,), LIST.arguments), "file:/in/b.csv"),
        (InputList((A, B, InputFile("file:/in/c.csv", 1, 1)), LIST.arguments), "file:/in/c.csv"),
        (InputList((A, InputFile("file:/in/b.csv", 21, 1_000)), LIST.arguments), "file:/in/b.csv"),
        (InputList((A, InputFile("file:/in/b.csv", 20, 1_001)), LIST.arguments), "file:/in/b.csv"),
        (InputList((A, B), digested_arguments({"--key": "name"})), "--key"),
        (InputList((A, B), digested_arguments({"--key": "id", "--schema": "id INT"})), "--schema"),
    ],
)
def test_each_difference_changes_the_digest_and_is_named(changed, named):
    assert changed.digest != LIST.digest
    assert named in first_difference(recorded(LIST), changed, 0)


def test_long_list_is_recorded_without_files_and_names_newer_files():
    files = tuple(InputFile(f"file:/in/{number:06}.csv", 100, 1_000) for number in range(10 * MOST_RECORDED))
    long = InputList(files, ())
    assert len(long.to_json()) < 1_000
    assert json.loads(long.to_json())["count"] == len(files)
    changed = InputList((*files[:-1], InputFile(files[-1].path, 100, 3_000)), ())
    assert changed.digest != long.digest
    assert files[-1].path in first_difference(recorded(long), changed, planned_at_ms=2_000)


def test_digest_covers_each_file_of_a_long_list():
    files = tuple(InputFile(f"file:/in/{number}.csv", 100, 1_000) for number in range(MOST_RECORDED + 1))
    swapped = (InputFile("file:/in/x.csv", 100, 1_000), *files[1:])
    assert InputList(files, ()).digest != InputList(swapped, ()).digest
