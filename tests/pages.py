"""The code blocks of the documentation pages."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/key_value_store/README.md",
    "examples/key_value_store/http/README.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
)

_BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block with a language."""

    language: str
    text: str
    why_not_run: str
    """The reason why no test runs it, from a comment right before it. Empty if a test does."""


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page in order."""
    for why_not, language, text in _BLOCK.findall((ROOT / page).read_text()):
        yield Block(language, text, why_not)


def commands(page: str) -> list[list[str]]:
    """Return the words of each command line of a page that a test runs or parses."""
    texts = [each.text for each in blocks(page) if each.language == "sh" and not each.why_not_run]
    return [shlex.split(line) for text in texts for line in text.replace("\\\n", " ").splitlines()]
