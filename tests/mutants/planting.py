"""Plant a defect: replace an expression or statements inside a named function, in a copy of the tree."""

import ast
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Node = ast.expr | ast.stmt


@dataclass(frozen=True, slots=True)
class Defect:
    """A change inside one function, and the promise that it breaks.

    Args:
        promise: The promise, as a sentence.
        function: ``package.module:Class.method``, or a constant: ``package.module:NAME``.
        old: The expression or the statements to replace. They must occur once in the function. They are compared as
            syntax trees, so layout and comments do not matter.
        new: An expression if `old` is one, otherwise statements.
    """

    promise: str
    function: str
    old: str
    new: str

    @property
    def file(self) -> Path:
        """Return the file of the function, relative to the tree."""
        module = self.function.partition(":")[0].replace(".", "/")
        files = [Path(folder, module + end) for folder in ("", "examples") for end in (".py", "/__init__.py")]
        found = [file for file in files if (ROOT / file).exists()]
        if len(found) != 1:
            raise ValueError(f"{self.function}: {len(found)} files have this module")
        return found[0]

    def planted(self, source: str) -> str:
        """Return the text of the file with the defect.

        Raises:
            ValueError: The function does not exist, or `old` does not occur exactly once in it.
        """
        old, new = ast.parse(self.old).body, ast.parse(self.new).body
        is_expression = all([type(each) for each in body] == [ast.Expr] for body in (old, new))
        wanted = list(ast.iter_child_nodes(old[0])) if is_expression else old
        runs = _runs(self._scopes(source), len(wanted))
        matches = [run for run in runs if list(map(ast.dump, run)) == list(map(ast.dump, wanted))]
        if len(matches) != 1:
            raise ValueError(f"{self.function} contains {len(matches)} times instead of once: {self.old}")
        first, last = matches[0][0], matches[0][-1]
        text = f"({self.new.strip()})" if is_expression else self.new.strip()
        # The columns of nodes count bytes.
        content = source.encode()
        begin = _position(content, first.lineno, first.col_offset)
        end = _position(content, last.end_lineno, last.end_col_offset)
        return (content[:begin] + indent(text, " " * first.col_offset).lstrip().encode() + content[end:]).decode()

    def _scopes(self, source: str) -> list[ast.AST]:
        scopes: list[ast.AST] = [ast.parse(source)]
        for name in self.function.partition(":")[2].split("."):
            scopes = [each for scope in scopes for each in _statements(scope) if name in _names(each)]
        if not scopes:
            raise ValueError(f"{self.function}: the module has no such function")
        return scopes


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a scope, without those inside its functions and classes."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, _DEFINITIONS):
            yield from _statements(node)


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a definition or an assignment binds."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _runs(scopes: Sequence[ast.AST], length: int) -> Iterator[Sequence[_Node]]:
    """Yield each expression or statement in the scopes, or each run of `length` consecutive statements."""
    for node in (node for scope in scopes for node in ast.walk(scope)):
        if length == 1 and isinstance(node, _Node):
            yield [node]
        elif length > 1:
            blocks = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
            for block in (block for block in blocks if isinstance(block, list)):
                yield from (block[at : at + length] for at in range(len(block) - length + 1))


def _position(content: bytes, line: int | None, column: int | None) -> int:
    lines = content.splitlines(keepends=True)
    return sum(map(len, lines[: (line or 1) - 1])) + (column or 0)


D = TypeVar("D", bound=Defect)


def listed(kind: type[D], file: Path) -> list[D]:
    """Return the defects of a list, in its order."""
    rows: list[dict[str, Any]] = tomllib.loads(file.read_text())["defect"]
    result = []
    for row in rows:
        fields: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in row.items()}
        result.append(kind(**fields))
    return result


def chosen(defects: Sequence[D], words: Sequence[str]) -> list[D]:
    """Return the defects that contain each word in any of their fields."""
    return [each for each in defects if all(word in str(each) for word in words)]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Copy the current tree, including uncommitted changes, for the duration of the block."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    with tempfile.TemporaryDirectory(prefix="spark-cas-mutants-") as folder:
        for name in files:
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
        yield Path(folder)


@contextmanager
def planted(defect: Defect, tree: Path) -> Iterator[dict[str, str]]:
    """Plant a defect into a tree for the duration of the block. Yields the environment for its programs."""
    file = tree / defect.file
    source = file.read_text()
    file.write_text(defect.planted(source))
    try:
        yield os.environ | {"PYTHONPATH": f"{tree}:{tree / 'examples'}", "PYTHONDONTWRITEBYTECODE": "1"}
    finally:
        file.write_text(source)
