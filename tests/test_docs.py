"""What the documentation names is there. Its examples in Python are run by spark/test_readme.py."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from spark_cas.programs import bootstrap_state, load_arguments, verify_log

ROOT = Path(__file__).parents[1]
LOADING = (ROOT / "docs/loading.md").read_text()


def blocks(language):
    return [textwrap.dedent(found) for found in re.findall(rf"```{language}\n(.*?)```", LOADING, re.DOTALL)]


PARSERS = {
    "jobs/bulk_load.py": load_arguments,
    "jobs/bootstrap_state.py": bootstrap_state,
    "jobs/verify_log.py": verify_log,
}


def test_the_commands_that_load_are_understood():
    commands = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]
    assert commands
    for command in commands:
        program, job, *arguments = shlex.split(command)
        assert program == "spark-submit"
        assert (ROOT / job).is_file()
        PARSERS[job].parse_arguments(arguments, job)


PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    targets = [each for each in re.findall(r"\]\(([^)\s]+)\)", text) if not each.startswith(("http", "#"))]
    assert [each for each in targets if not (ROOT / page).parent.joinpath(each.split("#")[0]).exists()] == []


def test_the_exit_codes_that_there_are_are_named():
    from spark_cas.programs.exit_codes import ExitCode

    assert [int(code) for code in re.findall(r"^\| (\d+) \|", LOADING, re.MULTILINE)] == sorted(ExitCode)
