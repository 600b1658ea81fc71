"""The code blocks of the pages of documentation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))

_BLOCK = re.compile(r"(?:<!-- not run: (.+?) -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block that says its language."""

    language: str
    text: str
    why_not_run: str
    """Why no test runs it, in a comment right before it; empty where one does."""


def blocks(page: str) -> Iterator[Block]:
    """Those of a page, in their order."""
    for why_not, language, text in _BLOCK.findall((ROOT / page).read_text()):
        yield Block(language, text, why_not)
