"""Chaos detects planted defects: one of them before each change, all of them in the long suite."""

import pytest

from tests.chaos.planted import Planted, detecting_seed, planted_defects
from tests.mutants.planting import ROOT, copied_tree

MOST = 30


def rows():
    """Yield all defects; each except the first runs only in the long suite."""
    for number, each in enumerate(planted_defects()):
        marks = [pytest.mark.full] if number else []
        marks += [pytest.mark.kafka] if each.backend == "kafka" else []
        marks += [pytest.mark.spark, pytest.mark.cluster] if each.backend.startswith("spark") else []
        yield pytest.param(each, id=each.promise, marks=marks)


def test_each_defect_can_be_planted():
    defects = planted_defects()
    assert len(defects) <= MOST
    for each in defects:
        source = (ROOT / each.file).read_text()
        assert each.planted(source) != source


@pytest.mark.timeout(2000)
@pytest.mark.parametrize("defect", list(rows()))
def test_chaos_sees(defect: Planted):
    with copied_tree() as tree:
        assert detecting_seed(defect, tree) is not None
