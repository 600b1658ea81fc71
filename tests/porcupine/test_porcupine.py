"""The linearizability checker accepts histories that registers can produce, and rejects all others."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.porcupine.checking import CheckerFailedError, built, linearizable

pytestmark = pytest.mark.timeout(330)  # the first test builds the checker


@pytest.fixture(scope="module", autouse=True)
def _built():
    built()


def op(call: int, returned: int | None, *steps: dict[str, Any], process: int = 0, **more: Any) -> dict[str, Any]:
    return {"process": process, "call": call, "return": returned, "steps": list(steps), **more}


def step(name: str, key: str = "k", **more: Any) -> dict[str, Any]:
    return {"op": name, "key": key, **more}


def put(call: int, returned: int | None, value: str, version: int | None, key: str = "k") -> dict[str, Any]:
    return op(call, returned, step("put", key, value=value, version=version))


def get(call: int, value: str, version: int | None, key: str = "k") -> dict[str, Any]:
    return op(call, call + 1, step("get", key, value=value, version=version), process=9)


def cas(call: int, returned: int | None, expected: int | None, value: str, **more: Any) -> dict[str, Any]:
    return op(call, returned, step("cas", expected=expected, value=value, version=more.pop("version", None)), **more)


def is_fine(*history: dict[str, Any]) -> bool:
    return linearizable(history).linearizable


def test_sequential_history_is_linearizable():
    assert is_fine(
        get(0, "", None),
        put(2, 3, "a", 0),
        get(4, "a", 0),
        cas(6, 7, 0, "b", version=3),
        cas(8, 9, 0, "c", mismatch=True, version=3),
        get(10, "b", 3),
        op(12, 13, step("delete", version=5)),
        get(14, "", None),
        cas(16, 17, None, "d", version=9),
        put(20, 21, "x", 4, key="other"),
    )


def test_a_stale_read_is_refused_and_its_key_is_named():
    told = linearizable([put(0, 1, "a", 0), put(2, 3, "b", 1), get(4, "a", 0), put(0, 1, "x", 0, "other")])
    assert (told.linearizable, told.told) == (False, "not linearizable: k")
    assert is_fine(put(0, 1, "a", 0), put(2, 9, "b", 1), get(4, "a", 0), get(6, "b", 1))
    assert not is_fine(put(0, 1, "a", 0), put(2, 9, "b", 1), get(4, "b", 1), get(6, "a", 0))


def test_a_lost_write_is_refused():
    assert not is_fine(put(0, 1, "a", 0), get(2, "", None))
    assert not is_fine(put(0, 1, "a", 0), op(2, 3, step("delete", version=1)), get(4, "a", 0))


def test_a_cas_that_two_clients_won_is_refused():
    first = put(0, 1, "a", 0)
    one, two = cas(2, 9, 0, "b", version=1), cas(2, 9, 0, "c", version=2, process=1)
    assert not is_fine(first, one, two)
    assert is_fine(first, one, cas(2, 9, 0, "c", mismatch=True, version=1, process=1))


def test_a_mismatch_that_was_none_is_refused():
    for told in (None, 0):
        assert not is_fine(put(0, 1, "a", 0), cas(2, 3, 0, "b", mismatch=True, version=told))
    assert is_fine(put(0, 1, "a", 0), cas(2, 3, None, "b", mismatch=True, version=0))
    assert is_fine(cas(2, 3, 0, "b", mismatch=True, version=None))


def test_mismatch_reports_the_current_version():
    written = put(0, 1, "a", 0), put(2, 3, "b", 1)
    assert is_fine(*written, cas(4, 5, 7, "c", mismatch=True, version=1))
    for told in (None, 0, 2):
        assert not is_fine(*written, cas(4, 5, 7, "c", mismatch=True, version=told))
    unheard = put(2, None, "b", None)
    assert is_fine(written[0], unheard, cas(4, 5, 0, "c", mismatch=True, version=3), get(6, "b", 3))
    assert not is_fine(written[0], unheard, cas(4, 5, 0, "c", mismatch=True, version=3), get(6, "a", 0))


def test_write_of_unknown_outcome_takes_effect_late_or_never():
    unheard = put(2, None, "b", None)
    assert is_fine(put(0, 1, "a", 0), unheard, get(4, "a", 0), get(6, "a", 0))
    assert is_fine(put(0, 1, "a", 0), unheard, get(4, "a", 0), get(6, "b", 7), cas(8, 9, 7, "c", version=8))
    assert not is_fine(put(0, 1, "a", 0), unheard, get(4, "b", 7), get(6, "a", 0))
    assert not is_fine(put(0, 1, "a", 0), unheard, get(4, "b", 7), get(6, "b", 8))
    assert not is_fine(put(0, 1, "a", 5), unheard, get(4, "b", 3))
    assert is_fine(
        put(0, 1, "a", 0), cas(2, None, 0, "b"), cas(3, 4, 0, "c", mismatch=True, version=2), get(6, "b", 2)
    )


def test_versions_rise():
    assert not is_fine(put(0, 1, "a", 4), put(2, 3, "b", 4))
    assert not is_fine(put(0, 1, "a", 4), op(2, 3, step("delete", version=5)), put(4, 5, "b", 3))


def test_a_transaction_takes_place_as_a_whole():
    both = op(0, 9, step("put", "x", value="1", version=0), step("put", "y", value="1", version=0))
    assert is_fine(both, get(2, "1", 0, "x"), get(4, "1", 0, "y"))
    told = linearizable([both, get(2, "1", 0, "x"), get(4, "", None, "y")])
    assert (told.linearizable, told.told) == (False, "not linearizable: x y")


def test_transaction_can_expect_unwritten_keys():
    start = put(0, 1, "a", 0, "x")
    write = step("put", "y", value="1", version=0)
    assert is_fine(start, op(2, 3, step("check", "x", expected=0), write))
    assert not is_fine(start, op(2, 3, step("check", "x", expected=None), write))
    assert is_fine(start, op(2, 3, step("check", "x", expected=None, version=0), mismatch=True))
    assert not is_fine(start, op(2, 3, step("check", "x", expected=0, version=0), mismatch=True))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (op(2, 1, step("get")), "returns before"),
        (op(0, 1), "at least one step"),
        (op(0, 1, step("push")), "no operation"),
        (op(0, 1, step("put", valu="a")), "unknown field"),
        (op(0, 1, step("put"), mismatch=True), "can be a mismatch"),
        (op(0, 1, step("check"), step("put", "x"), mismatch=True), "can be a mismatch"),
        (op(0, 1, step("put"), step("get")), "two steps"),
    ],
)
def test_invalid_history_has_no_verdict(wrong, why):
    with pytest.raises(CheckerFailedError, match=why):
        linearizable([wrong])


class Register:
    """The keys of a simulated store. Its operations take effect one after the other."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, int]] = {}
        self.offset = 0

    def take(self, name: str, key: str, value: str, call: int, returned: int | None) -> dict[str, Any]:
        found, version = self.held.get(key, ("", None))
        if name == "get":
            return op(call, returned, step("get", key, value=found, version=version))
        if name == "stale cas" and version is not None:
            told = version if returned is not None else None
            stale = step("cas", key, expected=version - 1, value=value, version=told)
            return op(call, returned, stale, mismatch=returned is not None)
        self.offset += 1
        told = self.offset if returned is not None else None
        if name == "delete":
            self.held.pop(key, None)
            return op(call, returned, step("delete", key, version=told))
        self.held[key] = value, self.offset
        if name == "cas":
            return op(call, returned, step("cas", key, expected=version, value=value, version=told))
        return op(call, returned, step("put", key, value=value, version=told))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["get", "get", "put", "cas", "stale cas", "delete"]),
        st.sampled_from("xy"),
        st.integers(0, 25),
        st.integers(0, 25),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=15)
@given(STEPS)
def test_any_sequential_history_of_a_store_is_linearizable(steps):
    store = Register()
    history = [
        store.take(name, key, f"v{at}", 10 * at - early, None if unheard else 10 * at + late)
        for at, (name, key, early, late, unheard) in enumerate(steps)
    ]
    assert is_fine(*history)
