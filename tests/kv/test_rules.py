"""The accepted writes of a batch, compared with a model that applies them one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from key_value_store.rules import Accepted, Mismatch, Writes, decide
from key_value_store.values import ANY

KEYS = st.sampled_from([b"a", b"b", b"c"])
VALUES = st.none() | st.sampled_from([b"1", b"2"])
VERSIONS = st.just(ANY) | st.none() | st.integers(0, 3)
WRITES = st.builds(
    Writes,
    st.dictionaries(KEYS, VALUES, min_size=1),
    st.dictionaries(KEYS, VERSIONS),
)
BASE = 100


def one_by_one(requests, state):
    """Apply each write to the state with the offsets that it gets, and return whether each is accepted."""
    versions, offset, told = dict(state), BASE, []
    for each in requests:
        wrong = {key for key, version in each.expected.items() if version not in (ANY, versions.get(key))}
        told.append(not wrong)
        if wrong:
            continue
        for key, value in each.values.items():
            versions[key] = None if value is None else offset
            offset += 1
    return told


@given(st.lists(WRITES, max_size=6), st.dictionaries(KEYS, st.integers(0, 3)))
def test_batch_has_the_effect_of_its_writes_in_order(requests, state):
    batch = decide(requests, state.get)
    assert [isinstance(each, Accepted) for each in batch.verdicts] == one_by_one(requests, state)
    accepted = [each for each, verdict in zip(requests, batch.verdicts, strict=True) if isinstance(verdict, Accepted)]
    assert batch.records == [item for each in accepted for item in each.values.items()]


@pytest.mark.parametrize(("state", "expected", "actual"), [({}, 7, None), ({b"a": 7}, None, 7), ({b"a": 7}, 6, 7)])
def test_rejected_write_gets_the_current_version(state, expected, actual):
    (verdict,) = decide([Writes({b"a": b""}, {b"a": expected})], state.get).verdicts
    assert verdict == Mismatch(b"a", expected, actual, in_batch=False)


def test_version_within_the_batch_is_its_position():
    first, second = Writes({b"b": b"", b"a": b""}, {}), Writes({b"a": b""}, {b"a": None})
    assert decide([first, second], {b"": 0}.get).verdicts[1] == Mismatch(b"a", None, 1, in_batch=True)


def test_one_wrong_version_refuses_all_writes_that_go_together():
    batch = decide([Writes({b"a": b"", b"b": b""}, {b"c": 1})], {b"": 0}.get)
    assert batch.records == []
