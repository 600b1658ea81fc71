"""Forged JSON in a registry, ledger or chunk raises an error: no field of a parsed value has another type."""

import json
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import FormatError
from spark_cas.core.group import GroupOutcome, outcome_from_json
from spark_cas.core.load_locks import LoadLock, LoadLocks, load_locks_from_json
from spark_cas.core.plan import (
    BatchProgress,
    Completion,
    EarlierRows,
    PartitionResult,
    Plan,
    Progress,
    Replacement,
)
from spark_cas.core.recorded_fields import INVALID_FIELDS, from_fields, from_json, recorded, to_json

BATCH = BatchProgress("query", 7, 2, "ab", complete=True, uncertain_from=5)
PROGRESS = Progress("job", 0, 3, "ab", 0, 9, 2, 0, False, 5, "run/0", BATCH, 4, ((0, 2), (8, 9)))
PLAN = Plan(
    "job", "log", 0, (None, 3), (0, 3), (Replacement(0, 1, None),),
    earlier=(EarlierRows("first", (1,), ("ab",), (True,)),), named=(1,),
)  # fmt: skip
COMPLETION = Completion("job", "log", 0, (PartitionResult(PROGRESS, 1, 2),), 5)
LOCKS = LoadLocks(3, (LoadLock("job", "run", ((0, 2),), "process", 5, ("before",), 7),))
OUTCOME = GroupOutcome(committed=True, ends=((0, 9),))

VALUES = [
    (to_json(PLAN), partial(from_json, Plan), to_json),
    (to_json(PROGRESS), partial(from_json, Progress), to_json),
    (to_json(COMPLETION), partial(from_json, Completion), to_json),
    (to_json(LOCKS), load_locks_from_json, to_json),
    (to_json(OUTCOME), lambda text: outcome_from_json(text, "job/0.0"), to_json),
]
FORGED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(value, path=()):
    """Yield the path to each value in a JSON document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from places(each, (*path, name))


def replaced(text, path, value):
    if not path:
        return json.dumps(value)
    document = json.loads(text)
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(document)


@given(st.data())
@pytest.mark.parametrize(("text", "parse", "write"), VALUES)
def test_a_forged_value_is_an_error_or_has_the_types_of_its_fields(text, parse, write, data):
    path = data.draw(st.sampled_from([*places(json.loads(text))]))
    try:
        value = parse(replaced(text, path, data.draw(FORGED)))
    except (*INVALID_FIELDS, FormatError):
        return
    assert parse(write(value)) == value


@pytest.mark.parametrize(("text", "parse"), [each[:2] for each in VALUES])
def test_each_field_rejects_other_types(text, parse):
    forged = {}
    for path in [*places(json.loads(text))][1:]:
        for value in ({"a": 1}, "text", 1.5):
            try:
                forged[path] = parse(replaced(text, path, value))
            except (*INVALID_FIELDS, FormatError):
                forged.pop(path, None)
                break
    assert forged == {}


@pytest.mark.parametrize(
    ("kind", "subject"), [(Plan, "the plan of job 'job'"), (Completion, "the completion of job")]
)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"job": ' * 100_000, "9" * 5_000, '{"job": Infinity}', "[]", '"a"'])
def test_hostile_json_in_the_registry_names_the_job(kind, subject, text):
    with pytest.raises(FormatError, match=subject):
        recorded(kind, text, "job")


@pytest.mark.parametrize("bounds", [[0, 10**12], [-1, 2], [2, 2], [3, 2], [False, 2], ["0", 2], [0, 2.0]])
def test_a_forged_lock_has_no_impossible_partitions(bounds):
    with pytest.raises(FormatError):
        load_locks_from_json(replaced(to_json(LOCKS), ("held", 0, "ranges", 0), bounds))


@pytest.mark.parametrize("ends", [[[0, "Infinity"]], [[0]], {"0": 1}, 5])
def test_a_forged_outcome_names_its_group(ends):
    text = replaced(to_json(OUTCOME), ("ends",), ends).replace('"Infinity"', "Infinity")
    with pytest.raises(FormatError, match=r"job/0\.0"):
        outcome_from_json(text, "job/0.0")


def test_a_bool_is_no_int():
    @dataclass
    class Count:
        count: int

    Count.__annotations__["count"] = int
    assert from_fields(Count, {"count": 1}) == Count(1)
    with pytest.raises(TypeError):
        from_fields(Count, {"count": True})
