"""Hooks of MkDocs for pages from files outside docs/.

The README, the changelog and other pages are outside docs/, and pages link to source files. These links work in the
repository, but not in the site. The hooks add the linked files to the site as pages, and rewrite the links.
"""

import json
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/decisions": "decisions/index.md",
    "examples/key_value_store/README.md": "key-value-store.md",
    "examples/key_value_store/http/README.md": "key-value-store-http.md",
    "notebooks/quickstart.ipynb": "notebook.md",
    "notebooks/bulk-load.ipynb": "notebook-bulk-load.md",
    "notebooks/bootstrap.ipynb": "notebook-bootstrap.md",
    "notebooks/streaming.ipynb": "notebook-streaming.md",
    "notebooks/atomic-loads.ipynb": "notebook-atomic-loads.md",
}
"""Files outside docs/ with a page in the navigation, and the folder of decisions, by path in the repository."""

SOURCES = "files/"
"""The folder of the site for source files that a page links to."""

SEARCH_BOOST = {"concepts.md": 10.0, "api.md": 0.5, "changelog.md": 0.5, "contributing.md": 0.5}
"""Weights of pages in the search, other than 1. The definition of a term is first."""

_TARGET = re.compile(r"(?<=\]\()(?![a-z]+:)([^)\s#]+)(#[^)\s]*)?(?=\))")
_LANGUAGES = {".conf": "properties", ".toml": "toml", ".py": "python", ".sql": "sql"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand ``folder/*`` in the navigation into the index of the folder and its pages."""
    for section in config.nav or []:
        for entries in section.values():
            for entry in entries if isinstance(entries, list) else []:
                entry.update({title: _expanded(path) for title, path in entry.items() if path.endswith("/*")})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and each source file that a page links to."""
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=_markdown(path)))
    linked = {
        target
        for file in list(files.documentation_pages())
        for link in _TARGET.finditer(file.content_string)
        if (target := _resolved(file.src_uri, link[1])) and (ROOT / target).is_file()
    }
    for path in sorted(linked):
        if _page_of(path).startswith(SOURCES):
            files.append(File.generated(config, _page_of(path), content=_markdown(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Replace links to files of the repository by links to their pages, and set the weight of the page."""
    name = page.file.src_uri
    if name.startswith(SOURCES):
        page.meta["search"] = {"exclude": True}
        return markdown
    page.meta["search"] = {"boost": SEARCH_BOOST.get(name, 0.5 if name.startswith("decisions/") else 1.0)}

    def replaced(link: re.Match[str]) -> str:
        target = _resolved(name, link[1])
        if not (ROOT / target).exists():
            return link[0]
        return posixpath.relpath(_page_of(target), posixpath.dirname(name) or ".") + (link[2] or "")

    return _TARGET.sub(replaced, markdown)


def _resolved(name: str, target: str) -> str:
    """Return the path in the repository of a link in a page of the site."""
    origins = {page: path for path, page in PAGES.items()}
    origin = "docs/decisions/index.md" if name == PAGES["docs/decisions"] else origins.get(name, f"docs/{name}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def _page_of(path: str) -> str:
    """Return the page of the site for a path in the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{SOURCES}{path}.md"


def _expanded(path: str) -> list[str]:
    folder = path.removesuffix("*")
    return [f"{folder}index.md", *(f"{folder}{file.name}" for file in sorted((ROOT / "docs" / folder).glob("*.md")))]


def _markdown(path: str) -> str:
    """Return a file of the repository as Markdown."""
    file = ROOT / path
    if file.is_dir():
        pages = sorted(file.glob("*.md"))
        titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in pages]
        links = [f"- [{title}]({page.name})" for title, page in zip(titles, pages, strict=True)]
        return "\n".join([f"# {file.name.capitalize()}", "", *links])
    text = file.read_text()
    if file.suffix == ".md":
        return text
    if file.suffix == ".ipynb":
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        return "\n\n".join(source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells)
    return f"# {file.name}\n\n`{path}`\n\n~~~~ {_LANGUAGES.get(file.suffix, 'text')}\n{text}\n~~~~\n"
