"""A defect changes one place of one function. Each defect of the list can be planted, and names existing tests."""

import ast

import pytest

from tests.mutants.__main__ import defects
from tests.mutants.planting import ROOT, Defect, chosen

MOST = 60

SOURCE = '''"""Ä module."""

LIMIT = 3  # a constant

if LIMIT:

    def outer(a, *, flag: bool = True):
        # é: columns of nodes count bytes
        text = "ü"; b = (a +
             1)

        def inner(a):
            return a + 2

        if flag and b > a:  # a comment
            raise ValueError(text)
        return inner(b)


class Thing:
    size: int = 3

    def outer(self):
        with self:
            first()
            second()
        return self.size

    @property
    def number(self): return 1

    @number.setter
    def number(self, value): self.size = value
'''


def planted(function, old, new):
    return Defect("a promise", f"package.module:{function}", old, new).planted(SOURCE)


@pytest.mark.parametrize(
    ("function", "old", "new", "before", "after"),
    [
        ("LIMIT", "3", "4", "LIMIT = 3", "LIMIT = (4)"),
        ("Thing.size", "3", "4", "int = 3", "int = (4)"),
        ("outer", "flag and b>a", "not flag", "flag and b > a", "(not flag)"),
        ("outer", "a+1", "a", "(a +\n             1)", "((a))"),
        ("outer.inner", "a + 2", "a", "a + 2", "(a)"),
        ("outer", "True", "False", "= True", "= (False)"),
        (
            "outer",
            "if flag and b > a: raise ValueError(text)",
            "if flag:\n    pass",
            "if flag and b > a:  # a comment\n            raise ValueError(text)",
            "if flag:\n            pass",
        ),
        ("Thing.outer", "first()\nsecond()", "pass", "first()\n            second()", "pass"),
        ("Thing.outer", "second()", "pass", "second()", "pass"),
        ("Thing.outer", "second()", "third()", "second()", "(third())"),
        ("Thing.number", "return 1", "return 2", "return 1", "return 2"),
        ("Thing.number", "self.size = value", "pass", "self.size = value", "pass"),
    ],
)
def test_one_place_is_changed(function, old, new, before, after):
    assert planted(function, old, new) == SOURCE.replace(before, after)


@pytest.mark.parametrize("function", ["inner", "outer.other", "Other", "Thing.inner", "text"])
def test_function_that_does_not_exist_is_an_error(function):
    with pytest.raises(ValueError, match="no such function"):
        planted(function, "a", "b")


@pytest.mark.parametrize(
    ("function", "old", "times"),
    [("outer", "a + 3", 0), ("outer", "a", 3), ("Thing.outer", "first()\nthird()", 0), ("outer.inner", "b > a", 0)],
)
def test_place_that_does_not_occur_once_is_an_error(function, old, times):
    with pytest.raises(ValueError, match=f"{times} times"):
        planted(function, old, "None")


def test_module_is_found_with_its_folder():
    assert str(Defect("", "spark_cas.core.offsets:Bounds", "", "").file) == "spark_cas/core/offsets.py"
    assert str(Defect("", "spark_cas.core:x", "", "").file) == "spark_cas/core/__init__.py"
    assert str(Defect("", "key_value_store.shard:Shard", "", "").file) == "examples/key_value_store/shard.py"
    with pytest.raises(ValueError, match="module"):
        _ = Defect("", "spark_cas.nowhere:Bounds", "", "").file


def test_planted_source_is_valid():
    ast.parse(planted("outer", "text = 'ü'\nb = a + 1", "text = b = 'ü'"))


def test_words_select_by_any_field():
    both = [Defect("resume", "m:f", "a", "b"), Defect("reads", "m:g", "a", "b")]
    assert chosen(both, ["m:", "res"]) == both[:1]


def test_each_defect_can_be_planted():
    listed = defects()
    assert len(listed) <= MOST
    assert len({each.promise for each in listed}) == len(listed)
    for each in listed:
        source = (ROOT / each.file).read_text()
        assert ast.dump(ast.parse(each.planted(source))) != ast.dump(ast.parse(source)), each.promise
        file, _, test = each.tests[0].partition("::")
        assert f"def {test}" in (ROOT / file).read_text(), each.promise
