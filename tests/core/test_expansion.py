import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import LayoutChangedError
from spark_cas.core.expansion import Expansion, Layouts, partitions_at, reading_limits, require_named_as_now
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import Layout

DOUBLINGS = (2, 4, 8, 16)
STEPS = st.lists(st.one_of(st.integers(0, 40), st.just("expand")), max_size=60)
"""The number of a key, for which one more record is appended, or an expansion."""


class Log:
    """Records in partitions by key. Each record is its key and the number of earlier records of the key."""

    def __init__(self, counts, steps):
        self.partitions: list[list[tuple[int, int]]] = [[] for _ in range(counts[0])]
        self.expansions: tuple[Expansion, ...] = ()
        self.layouts: dict[tuple[int, int], int] = {}
        left, seen = list(counts[1:]), dict[int, int]()
        for step in steps:
            if step == "expand":
                self.expand(left.pop(0)) if left else None
                continue
            seen[step] = seen.get(step, -1) + 1
            partition = step * 2654435761 % 2**32 % len(self.partitions)
            self.layouts[partition, len(self.partitions[partition])] = len(self.expansions)
            self.partitions[partition].append((step, seen[step]))

    def expand(self, count):
        ends = tuple(map(len, self.partitions))
        self.expansions += (Expansion(len(self.expansions) + 1, count, ends),)
        self.partitions += [[] for _ in range(count - len(ends))]


def read_all(log, draw, limits_of=reading_limits):
    """Return the records in the order of a reader whose batches take random amounts within the limits."""
    positions = dict.fromkeys(range(len(log.partitions)), 0)
    taken: list[tuple[int, int]] = []
    while True:
        limits = limits_of(log.expansions, positions)
        free = {at: min(limits.get(at, len(log.partitions[at])), len(log.partitions[at])) for at in positions}
        sizes = {at: free[at] - positions[at] for at in positions}
        if not any(sizes.values()):
            return taken
        order = draw(st.permutations([at for at in sizes if sizes[at]]))
        sizes = {at: draw(st.integers(0, sizes[at])) for at in order[:-1]} | {order[-1]: sizes[order[-1]]}
        for at in order:
            taken += log.partitions[at][positions[at] : positions[at] + sizes[at]]
            positions[at] += sizes[at]


def in_order(taken):
    seen = dict[int, int]()
    for key, number in taken:
        if number != seen.get(key, -1) + 1:
            return False
        seen[key] = number
    return True


@pytest.mark.parametrize("counts", [DOUBLINGS, (3, 5, 6), (1, 2, 3, 4)], ids=str)
@given(st.data(), STEPS)
def test_each_key_is_read_completely_and_in_order(counts, data, steps):
    log = Log(counts, steps)
    taken = read_all(log, data.draw)
    assert len(taken) == sum(map(len, log.partitions))
    assert in_order(taken)


KEYS = [*range(40)]


@pytest.mark.parametrize("counts", [DOUBLINGS, (3, 5, 6)], ids=str)
def test_reader_without_the_limits_breaks_the_order_of_a_key(counts):
    log = Log(counts, [*KEYS, "expand", *KEYS, "expand", *KEYS])
    newest_first = [record for partition in reversed(log.partitions) for record in partition]
    assert not in_order(newest_first)


def test_reader_that_delays_only_new_partitions_breaks_the_order():
    log = Log((3, 5), [*KEYS, "expand", *KEYS])
    orders = itertools.permutations(range(3))
    taken = [[record for at in [*order, 3, 4] for record in log.partitions[at]] for order in orders]
    assert not all(map(in_order, taken))


def test_new_partition_waits_until_earlier_ones_pass_their_thresholds():
    history = (Expansion(1, 4, (5, 7)), Expansion(2, 8, (9, 7, 0, 3)))
    assert reading_limits(history, {0: 4, 1: 7, 2: 0, 3: 0}) == {2: 0, 3: 0}
    assert reading_limits(history, dict.fromkeys(range(8), 7)) == {4: 7, 5: 7, 6: 7, 7: 7}
    assert reading_limits(history, {0: 9, 1: 7, 2: 0, 3: 3, 4: 0}) == {}
    assert reading_limits((), {0: 0}) == {}


def test_all_partitions_stop_at_thresholds_if_keys_move_among_old_ones():
    history: tuple[Expansion, ...] = (Expansion(1, 5, (5, 7, 2)),)
    assert reading_limits(history, {0: 0, 1: 9, 2: 2, 3: 0}) == {0: 5, 1: 9, 2: 2, 3: 0}
    assert reading_limits(history, {0: 5, 1: 7, 2: 2, 3: 0}) == {}
    history += (Expansion(2, 7, (8, 9, 2, 1, 0)),)
    assert reading_limits(history, dict.fromkeys(range(4), 0)) == {0: 5, 1: 7, 2: 2, 3: 0}


def test_all_partitions_stop_at_thresholds_with_isolation_load():
    history = (Expansion(1, 4, (5, 7)), Expansion(2, 8, (9, 7, 0, 3)))
    assert reading_limits(history, {0: 4, 1: 9, 2: 0, 3: 0}, whole=True) == {0: 5, 1: 9, 2: 0, 3: 0}
    assert reading_limits(history, dict.fromkeys(range(5), 7), whole=True) == {0: 9, 1: 7, 2: 7, 3: 7, 4: 7}
    assert reading_limits(history, dict.fromkeys(range(8), 9), whole=True) == {}


def test_partitions_that_are_not_read_hold_nothing_up():
    assert reading_limits((Expansion(1, 4, (5, 7)),), {1: 7, 3: 0}) == {}


@given(STEPS)
def test_offset_determines_its_layout(steps):
    log = Log(DOUBLINGS, steps)
    layouts = Layouts(Layout("log", len(log.expansions), len(log.partitions)), log.expansions)
    counts = [*(each.before for each in log.expansions), len(log.partitions)]
    for at, layout in log.layouts.items():
        assert partitions_at(layouts, *at) == counts[layout]


@pytest.mark.parametrize(("partitions", "thresholds"), [(2, (1, 2)), (2, ()), (3, (1, -1)), (1, (0, 0))])
def test_an_expansion_adds_partitions_to_some_whose_ends_are_known(partitions, thresholds):
    with pytest.raises(ValueError, match="adds partitions"):
        Expansion(1, partitions, thresholds)


GROWN = (Expansion(1, 4, (3, 0)), Expansion(2, 8, (3, 0, 1, 1)))


@pytest.mark.parametrize("named", ['{"0": 3, "1": 0}', '{"1": null, "0": 3}', '{"0": 0, "1": 0, "2": 0, "3": null}'])
def test_offsets_of_just_the_partitions_of_an_earlier_layout_are_refused(named):
    with pytest.raises(LayoutChangedError, match=r"before an expansion\. Now it has 8,"):
        require_named_as_now(ExpectedOffsets.parse(named), GROWN, 8)


@pytest.mark.parametrize("named", ["end", "none", '{"0": 3}', '{"1": 0, "2": 0}', '{"0": 3, "1": 0, "2": 0}'])
def test_offsets_with_added_partitions_are_accepted(named):
    require_named_as_now(ExpectedOffsets.parse(named), GROWN, 8)
    require_named_as_now(ExpectedOffsets.parse('{"0": 3, "1": 0}'), (), 4)
