"""Each kind of finding has a command or a change that fixes it."""

import ast
from pathlib import Path

from spark_cas.core.finding import Finding, Problem

PACKAGE = Path(__file__).parents[2] / "spark_cas"
FIELDS = [*Finding.__dataclass_fields__]


def calls_of(source):
    """Yield the arguments of each finding that a module constructs, by field."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Finding":
            named = {each.arg: each.value for each in call.keywords}
            yield dict(zip(FIELDS, call.args, strict=False)) | named


def has_fix(arguments):
    fix = arguments.get("fix")
    return fix is not None and not (isinstance(fix, ast.Constant) and not fix.value)


def test_each_kind_of_finding_has_a_fix():
    sources = [file.read_text() for file in PACKAGE.rglob("*.py")]
    calls = [each for text in sources if "Finding(" in text for each in calls_of(text)]
    assert calls
    assert [ast.unparse(each["meaning"]) for each in calls if not has_fix(each)] == []
    reported = {each for each in Problem if any(f"Problem.{each}" in text for text in sources)}
    assert reported == {*Problem}


def test_finding_without_a_fix_is_noticed():
    [without] = calls_of('Finding(Problem.RETENTION, Severity.INFO, "topic", "meaning", details={})')
    [empty] = calls_of('Finding(Problem.RETENTION, Severity.INFO, "topic", "meaning", fix="")')
    assert not has_fix(without)
    assert not has_fix(empty)
