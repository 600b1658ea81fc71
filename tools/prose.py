"""Check the English of the project.

    python -m tools.prose [PATH...]

Marker words are frequent in text that hides its actor or its verb, and rare in the docs of similar projects. The
check reads Markdown outside of code, and the docstrings, comments and strings of Python files. Strings of less than
four words are names, not text. It prints one line per finding, and exits with 1 if there are any:

- a file of more than 200 words with more than 4 marker words per 1,000
- a sentence of more than 35 words
- a name with a marker word in spark_cas
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path, PurePath

MARKERS = re.compile(
    r"\b(?:who|whoever|whom|nobody|somebody|told|tells?|telling|says?|said|anew|once more|comes?|came|goes|went|gone|"
    r"lies|lay|stands?|stood|behind|in front of|looks?|looked|asks?|asked|mend(?:s|ed)?|what|whatever|for ever|"
    r"in place of|lets? go|but for|likewise|thereby|lately|at rest)\b",
    re.IGNORECASE,
)
NAME_MARKERS = re.compile(
    r"who|whoever|nobody|told|tells?|says|said|anew|came|comes?|goes|went|lies|stood|stands|behind|looks?|looked|asked|"
    r"asks|met|missed|taken|given|lately|rest|found|handed|mine|what|whatever|lets|seen|broke",
    re.IGNORECASE,
)
NAMED = "spark_cas/"
"""The folder in which names are checked."""
PER_1000, FEW_WORDS, LONG = 4, 200, 35
EXCEPT = {
    "tools/prose.py": "lists the marker words",
    "LOG_NOT_FOUND": "an error code",
    "LogNotFoundError": "the error with this code",
    "NOT_FOUND": "errors of Kafka for topics and groups that do not exist",
}
"""Files and identifiers that are not checked, each with the reason."""

_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.)\s)|\n(?=\s*[\w*`.]+: )")
"""Ends of paragraphs: a blank line, or the next item of a list, of a table or of the arguments in a docstring."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=:)\s+(?=[A-Z])")
_PLAIN = re.compile(r"[\"'(*]*[A-Za-z][a-z'-]*[\"')*.,:;!?]*")
_NO_TEXT = ("#!", "# noqa", "# type:", "# ruff:")


def findings(path: str, text: str) -> Iterator[str]:
    """Return the findings in the text of one file, a line each."""
    words = markers = 0
    for line, sentence in sentences(path, text):
        count = len(_WORD.findall(sentence))
        words += count
        markers += len(MARKERS.findall(sentence))
        if count > LONG and _is_prose(sentence):
            yield f"{path}:{line}: sentence of {count} words: {sentence}"
    if words > FEW_WORDS and 1000 * markers > PER_1000 * words:
        yield f"{path}: {1000 * markers / words:.1f} marker words per 1,000, and {PER_1000} are allowed"


def sentences(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Return the sentences of a file with the lines of their paragraphs, without code."""
    for start, block in _of_python(text) if path.endswith(".py") else [(1, _without_code(text))]:
        for line, paragraph in _paragraphs(start, block):
            for sentence in _SENTENCE.split(paragraph):
                if len(_WORD.findall(sentence)) > 2:  # noqa: PLR2004
                    yield line, sentence


def names(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Return the identifiers of a Python file that contain a marker word, and its own name, with their lines."""
    result = [(1, PurePath(path).stem)]
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                result.append((node.lineno, name))
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                result.append((node.lineno, name))
    for line, name in result:
        parts = re.split(r"_|(?<=[a-z])(?=[A-Z])", name)
        if name not in EXCEPT and any(map(NAME_MARKERS.fullmatch, parts)):
            yield line, name


def check(paths: list[str]) -> list[str]:
    """Return the findings in the files, a line each."""
    lines: list[str] = []
    for path in paths:
        if path not in EXCEPT:
            text = Path(path).read_text()
            lines += findings(path, text)
            for line, name in names(path, text) if path.startswith(NAMED) and path.endswith(".py") else ():
                lines.append(f"{path}:{line}: name with a marker word: {name}")
    return lines


def _is_prose(sentence: str) -> bool:
    """Distinguish prose from programs, settings and markup, which have words with other characters than letters."""
    tokens = sentence.replace("X", "").split()
    return sum(map(bool, map(_PLAIN.fullmatch, tokens))) > 0.7 * len(tokens)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    """Return the strings and comments of a Python file with their lines. Values in f-strings become X."""
    tree = ast.parse(text)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr):
            continue
        value = ""
        if isinstance(node, ast.JoinedStr):
            value = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            value = node.value
        if len(_WORD.findall(value)) >= 4:  # noqa: PLR2004
            yield node.lineno, value
    first, comment = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(_NO_TEXT):
            first = first if comment else token.start[0]
            comment += token.string.lstrip("#:") + "\n"
        elif comment and token.type not in {tokenize.NL, tokenize.COMMENT}:
            yield first, comment
            comment = ""


def _without_code(markdown: str) -> str:
    """Remove blocks of code but not their lines, and make each cell of a table a paragraph."""
    code = re.compile(r"^ *```.*?^ *```|(?<=\n\n)(?: {4}[^\n]*\n)+", re.DOTALL | re.MULTILINE)
    text = code.sub(lambda code: "\n" * code[0].count("\n"), markdown)
    return re.sub(r"(?<=\|)(?=[^\n]*\|)", _CELL, text)


_CELL = " \x1f"


def _paragraphs(line: int, text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for end in [*_BLOCK.finditer(text), None]:
        block = text[start : end.start() if end else None]
        for cell in block.split(_CELL):
            plain = re.sub(r".*[├└│].*", "", cell)
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
            plain = re.sub(r"``[^`]*``|`[^`]*`", "X", plain)
            yield line + text.count("\n", 0, start), re.sub(r"\s+", " ", plain).strip(" -*|#>")
        start = end.end() if end else start


if __name__ == "__main__":
    tracked = subprocess.run(["git", "ls-files", "*.md", "*.py"], check=True, capture_output=True, text=True)  # noqa: S607
    result = check(sys.argv[1:] or tracked.stdout.split())
    print(*result, sep="\n", end="\n" if result else "")
    sys.exit(bool(result))
