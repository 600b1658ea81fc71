"""make house: print the size of the package next to its targets. Exit code 1 if a figure misses its target."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_cas.options.table import OPTIONS
from tools.kafka_connector import SINK, SOURCE

ROOT = Path(__file__).parents[1]
PACKAGE = "spark_cas"
KAFKA = f"{PACKAGE}/log/kafka"
_TIME = re.compile(
    r"^_?(?!NANOSECONDS$|MILLISECONDS_IN$)[A-Z][A-Z_0-9]*(SECONDS|_MS|_S|_MINUTES|_HOURS|_DAYS)(_[A-Z_]+)?$"
)
"""Names of durations. The two exceptions are units."""
_STALE = re.compile(r"\b(stale|demoted|stalled|ConfirmingRead|confirming_read)\b", re.IGNORECASE)
_LONGEST = 500
_OPERATIONS = ("authentication", "command-line", "doctor", "metrics", "orchestration", "schema-registry")
"""The operations pages: each describes one server or tool. Together they have 4,000 words of their own."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and the largest value that it may have."""

    name: str
    value: int
    target: int


def figures() -> list[Figure]:
    """Measure the committed files of the package."""
    files = {path: (ROOT / path).read_text() for path in _listed(f"{PACKAGE}/*.py")}
    trees = {path: ast.parse(text) for path, text in files.items()}
    parts, imports = _parts_and_imports(trees)
    names = defaultdict(set)
    for path in files:
        if Path(path).stem not in {"__init__", "__main__"}:
            names[Path(path).stem].add(str(Path(path).parent))
    lines = {path: len(text.splitlines()) for path, text in files.items()}
    docs, operations = _words("docs/*.md"), sum(_words(f"docs/{page}.md") for page in _OPERATIONS)
    return [
        Figure("lines of the package", sum(lines.values()), 25_000),
        Figure("files of the package", len(files), 200),
        Figure(f"files of more than {_LONGEST} lines", sum(each > _LONGEST for each in lines.values()), 0),
        Figure("file names in several folders", sum(len(each) > 1 for each in names.values()), 8),
        Figure("documented options of our own", len(_own_options()), 36),
        Figure("time constants", sum(1 for tree in trees.values() for _ in _time_constants(tree)), 40),
        Figure("files that know stale leaders", sum(bool(_STALE.search(text)) for text in files.values()), 12),
        Figure(f"files and folders in {KAFKA}", len(parts), 10),
        Figure(f"imports between files and folders in {KAFKA}", len(imports), 30),
        Figure(f"imports in both directions in {KAFKA}", sum((b, a) in imports for a, b in imports) // 2, 0),
        Figure("planted defects", len(_defects()), 60),
        Figure("words of the docs", docs, 24_000),
        Figure("words of the docs without operations", docs - operations, 20_000),
        Figure("words of the decisions", _words("docs/decisions/*.md"), 6_000),
        Figure("words of the README", _words("README.md"), 350),
    ]


def main() -> int:
    """Print the figures and return the exit code."""
    measured = figures()
    for each in measured:
        missed = "" if each.value <= each.target else " !"
        print(f"{each.value:>8,} of at most {each.target:>7,}{missed:2}  {each.name}")
    return int(any(each.value > each.target for each in measured))


def _listed(pattern: str) -> list[str]:
    command = ["git", "ls-files", f":(glob){pattern.replace('/*.py', '/**/*.py')}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def _words(pattern: str) -> int:
    return sum(len((ROOT / path).read_text().split()) for path in _listed(pattern))


def _own_options() -> set[str]:
    """Return the documented options that Spark's Kafka connector does not have."""
    return {each.name for each in OPTIONS if not each.internal} - {each.name for each in (*SOURCE, *SINK)}


def _defects() -> list[object]:
    return list(tomllib.loads((ROOT / "tests/mutants/defects.toml").read_text())["defect"])


def _time_constants(tree: ast.Module) -> Iterator[str]:
    """Yield the module constants in units of time, and the fields of the class `Timing`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Timing":
            yield from (
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            )
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (each.id for each in targets if isinstance(each, ast.Name) and _TIME.match(each.id))


def _parts_and_imports(trees: dict[str, ast.Module]) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the direct children of the Kafka backend, and the imports between them."""
    parts = {_part(path.removesuffix(".py")) for path in trees if path.startswith(f"{KAFKA}/")} - {"__init__"}
    imports = set()
    for path, tree in trees.items():
        if not path.startswith(f"{KAFKA}/"):
            continue
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.startswith(KAFKA.replace("/", ".") + ".")
            ):
                imports.add((_part(path.removesuffix(".py")), _part(node.module.replace(".", "/"))))
    return parts, {(a, b) for a, b in imports if a != b and {a, b} <= parts}


def _part(path: str) -> str:
    return path.removeprefix(f"{KAFKA}/").split("/")[0]


if __name__ == "__main__":
    sys.exit(main())
