"""The documentation site in a browser: each page loads without errors or other hosts, and the search works."""

import re
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import expect, sync_playwright

import spark_cas
from spark_cas import metrics, schema_registry
from tests.executables import executable
from tests.long import full
from tests.pages import ROOT

pytestmark = pytest.mark.browser

WITHIN_MS = 30_000
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
# Root cannot use Chromium's sandbox. The browser opens only pages of the tests, and finds no other host.
ARGUMENTS = ("--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
BROKEN_IMAGES = "[...document.images].filter(each => !each.complete || !each.naturalWidth).map(each => each.src)"
LISTS_AS_TEXT = """[...document.querySelectorAll("article p")]
    .map(each => each.textContent).filter(text => /^[-*] /m.test(text))"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""


def build(folder, *more):
    # Not with --quiet, which also hides warnings from --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder, *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def serving(folder):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def site(folder):
    with serving(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable("chromium"), args=[*ARGUMENTS])
        yield started
        started.close()


@contextmanager
def opened(browser, address, complaints, **more):
    """Yield a page of the browser. Its errors and its requests to other hosts are added to the complaints."""
    context = browser.new_context(**{"viewport": WIDE, **more})
    page = context.new_page()
    page.on("request", lambda sent: None if sent.url.startswith((address, "data:")) else complaints.append(sent.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if line.type in {"error", "warning"} else None)
    page.on("response", lambda got: complaints.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    yield page
    context.close()


def links(page, within):
    addresses = page.locator(f"{within} a[href]").evaluate_all("all => all.map(each => each.href.split('#')[0])")
    return set(addresses)


@pytest.mark.full
def test_every_link_of_the_navigation_opens_a_page_without_errors(site, browser):
    complaints: list[str] = []
    with opened(browser, site, complaints) as page:
        page.goto(site)
        to_visit, visited = links(page, "nav"), set()
        while to_visit:
            address = to_visit.pop()
            page.goto(address, wait_until="load")
            visited.add(address)
            complaints += [f"{address}: broken image {each}" for each in page.evaluate(BROKEN_IMAGES)]
            complaints += [f"{address}: no list: {each}" for each in page.evaluate(LISTS_AS_TEXT)]
            to_visit |= {each for each in links(page, "article") if each.startswith(site)} - visited
        assert not complaints
    names = {each.removeprefix(site) for each in visited}
    documents = (str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md"))
    assert names >= {*documents, "changelog.html", "notebook.html", "files/conf/conditional-log.toml.html"}


def test_a_wrong_link_or_a_page_outside_the_navigation_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[a](absent.md) [b](other.md#absent)")
    (tmp_path / "docs/other.md").write_text("# Other")
    settings = (ROOT / "mkdocs.yml").read_text()
    validation = settings[settings.index("strict: true") : settings.index("# Adds pages")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\n{validation}\nnav:\n  - index.md\n")
    built = build(tmp_path / "site", "--config-file", tmp_path / "mkdocs.yml")
    assert built.returncode != 0
    assert "'absent.md', but the target is not found" in built.stderr
    assert "contain an anchor '#absent'" in built.stderr
    assert "other.md" in built.stderr.partition('not included in the "nav"')[2]


def test_the_errors_of_a_page_are_noticed(tmp_path, browser):
    (tmp_path / "index.html").write_text(
        "<img src=absent.png><img src='http://other.example/other.png'><script>console.error('broken')</script>"
        "<article><p>text\n- item</p></article>"
    )
    complaints: list[str] = []
    with serving(tmp_path) as address, opened(browser, address, complaints) as page:
        page.goto(address, wait_until="load")
        assert len(page.evaluate(BROKEN_IMAGES)) == 2
        assert page.evaluate(LISTS_AS_TEXT) == ["text\n- item"]
    assert {"broken", "http://other.example/other.png", f"404 {address}absent.png"} <= set(complaints)


def test_the_search_finds_a_term(site, browser):
    complaints: list[str] = []
    with opened(browser, site, complaints) as page:
        page.goto(site)
        page.locator("input[name=query]").click()
        page.locator("input[name=query]").press_sequentially("end marker")
        result = page.locator(".md-search-result__link[href*='concepts.html']").first
        expect(result).to_be_attached(timeout=WITHIN_MS)
    assert not complaints


@pytest.mark.parametrize("scheme", ["light", *full("dark")])
@pytest.mark.parametrize("viewport", [WIDE, PHONE])
def test_a_page_fits_the_window(site, browser, viewport, scheme):
    with opened(browser, site, [], viewport=viewport, color_scheme=scheme) as page:
        for name in ("index.html", "concepts.html", "options.html", "api.html"):
            page.goto(f"{site}{name}")
            assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], name


def test_the_reference_has_every_public_name(folder):
    headings = re.findall(r'<h3 id="[\w.]+\.(\w+)" class="doc doc-heading">', (folder / "api.html").read_text())
    assert sorted(headings) == sorted([*spark_cas.__all__, *schema_registry.__all__, *metrics.__all__])
