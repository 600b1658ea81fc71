"""The documentation names only existing files, links and names. spark/test_examples.py runs its examples."""

import re

import pytest

from jobs import bootstrap_state, stream_copy, verify_log
from key_value_store import cli as store
from spark_cas.cli.commands import command_line
from spark_cas.core.errors import ErrorKind
from spark_cas.core.finding import Problem
from spark_cas.programs import bulk_load
from tests.pages import PAGES, ROOT, commands

DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
LOADING = (ROOT / "docs/loading.md").read_text()

PARSERS = {
    "jobs/bulk_load.py": bulk_load,
    "jobs/bootstrap_state.py": bootstrap_state,
    "jobs/stream_copy.py": stream_copy,
    "jobs/verify_log.py": verify_log,
}

COMMAND_LINES = {"spark-cas": command_line(), "key_value_store": store.command_line()}


def understood(line):
    """Parse a command as the program would, which exits if the command is wrong."""
    if line[:3] == ["python", "-m", "key_value_store"]:
        line = line[2:]
    program, name, *arguments = line
    if (program, name) == ("spark-cas", "load"):
        bulk_load.parse_arguments(arguments, name)
    elif program == "spark-submit":
        assert (ROOT / name).is_file()
        PARSERS[name].parse_arguments(arguments, name)
    else:
        COMMAND_LINES[program].parse([name, *arguments])


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_are_understood(page):
    for line in commands(page):
        understood(line)


def test_a_command_that_is_wrong_is_not_understood():
    with pytest.raises(SystemExit):
        understood(["spark-submit", "jobs/verify_log.py", "--keys", "k"])
    with pytest.raises(SystemExit):
        understood(["spark-cas", "expand", "log", "--partition", "8"])
    with pytest.raises(SystemExit):
        understood(["python", "-m", "key_value_store", "get", "key", "--node", "localhost:1", "--partition", "8"])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    targets = [each for each in re.findall(r"\]\(([^)\s]+)\)", text) if not each.startswith(("http", "#"))]
    assert [each for each in targets if not (ROOT / page).parent.joinpath(each.split("#")[0]).exists()] == []


def misplaced(text):
    """Return lines of lists with an indentation that Python-Markdown, unlike GitHub, does not understand."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^ {1,3}[-*] .*|(?<=\n\n) {1,3}\S.*", text, re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, *(f"docs/decisions/{each.name}" for each in DECISIONS)])
def test_nested_lists_are_indented_by_four_spaces(page):
    assert misplaced((ROOT / page).read_text()) == []


def test_a_nested_list_that_is_indented_by_two_spaces_is_noticed():
    assert misplaced("- a\n  - b\n\n  c\n") == ["  - b", "  c"]
    assert misplaced("- a\n  b\n    - c\n\n    d\n```\n  - e\n```\n") == []


def test_the_exit_codes_that_there_are_are_named():
    from spark_cas.programs.errors import ExitCode

    assert [int(code) for code in re.findall(r"^\| (\d+) \|", LOADING, re.MULTILINE)] == sorted(ExitCode)


def test_each_problem_of_the_doctor_is_explained():
    table = (ROOT / "docs/doctor.md").read_text().partition("## Problems")[2].partition("## ")[0]
    rows = re.findall(r"^\| (`.+?`) \| .+ \| .+ \|$", table, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)) == sorted(Problem)


def test_the_codes_of_errors_that_there_are_are_explained():
    table = (ROOT / "docs/errors.md").read_text().partition("## Codes")[2]
    assert sorted(re.findall(r"^\| `([A-Z_]+)` \| .+ \| .+ \|$", table, re.MULTILINE)) == sorted(ErrorKind)
