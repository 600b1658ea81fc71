"""The status page of a node in a browser, with the viewport of a desktop and of a phone."""

import operator
import re
import signal
from contextlib import closing

import pytest
from playwright.sync_api import Error, expect, sync_playwright

from key_value_store import Node
from key_value_store.errors import VersionMismatchError
from key_value_store.http.wire import path_of_key
from spark_cas import open_log
from spark_cas.core.partitioner import partition_of_key
from tests.executables import executable
from tests.kv.http.servers import SECONDS, TOKEN, leader_of, serving
from tests.kv.nodes import keys_of

pytestmark = pytest.mark.browser

WIDE, PHONE = {"width": 1200, "height": 800}, {"width": 360, "height": 740}
WITHIN_MS = SECONDS * 1000
MARKUP = "<img src=x onerror=ran()><script>ran()"
LEGIBLE = 7
"""The contrast ratio of WCAG 2, level AAA."""
WEIGHTS = (0.2126, 0.7152, 0.0722)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        # Root cannot use Chromium's sandbox. The browser opens only pages of the tests.
        started = playwright.chromium.launch(executable_path=executable("chromium"), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Return a function that opens a node's page. The page must not raise errors or send requests to other hosts."""
    complaints = []
    contexts = []

    def opened(node, origin="http://", **more):
        contexts.append(browser.new_context(**{"viewport": WIDE, **more}))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda request: complaints.append(request.url) if node.address not in request.url else None
        )
        page.goto(f"{origin}{node.address}/")
        expect(page.locator("tbody tr")).to_have_count(2, timeout=WITHIN_MS)
        return page

    yield opened
    for each in contexts:
        each.close()
    assert not complaints


def cell(page, shard, name):
    return page.locator(f"#shard-{shard} td[data-name='{name}']")


def test_page_shows_each_shard_and_updates_itself(nodes, client, opened):
    page = opened(nodes[0])
    expect(page.locator("h1")).to_have_text(f"Node {nodes[0].address} of the store in log log")
    client.put(b"page", b"1")
    for _ in range(2):
        versions = client.transact({b"page": b"1", b"page-2": b"2", b"page-3": b"3", b"page-4": b"4"})
        end = f"{max(versions.values()) + 1:,}"
        shown = page.locator("td[data-name='upcoming offset']", has_text=end)
        expect(shown.first).to_be_visible(timeout=WITHIN_MS)
        expect(page.locator("td[data-name='lag']").first).to_have_text("0", timeout=WITHIN_MS)


def test_followers_link_to_the_leader(nodes, client, opened):
    client.put(b"page", b"1")
    leader = leader_of(nodes, path_of_key(b"page"))
    shard = partition_of_key(b"page", 2)
    for node in nodes:
        shown = cell(opened(node), shard, "leader")
        if node.address == leader:
            expect(shown).to_have_text("this node", timeout=WITHIN_MS)
        else:
            expect(shown.locator("a")).to_have_attribute("href", f"http://{leader}/", timeout=WITHIN_MS)


@pytest.mark.parametrize("login", ["", f"name:{TOKEN}@"])
def test_page_over_tls_with_the_token_as_password(secured, secured_client, opened, login):
    """The browser sends the password after the node requests it, or has it from the address."""
    credentials = None if login else {"username": "name", "password": TOKEN}
    for shard in range(2):
        secured_client.put(keys_of(shard, 1)[0], b"1")
    pages = [
        opened(each, f"https://{login}", ignore_https_errors=True, http_credentials=credentials) for each in secured
    ]
    for shard in range(2):
        leaders = [cell(each, shard, "leader") for each in pages]
        at = next(at for at, each in enumerate(leaders) if each.text_content() == "this node")
        link = leaders[1 - at].locator("a")
        expect(link).to_have_attribute("href", f"https://{secured[at].address}/", timeout=WITHIN_MS)


def test_page_without_the_token_names_the_password(secured, browser):
    with closing(browser.new_context(ignore_https_errors=True)) as context:
        page = context.new_page()
        page.goto(f"https://{secured[0].address}/")
        expect(page.locator("body")).to_contain_text("in a browser the token as the password")


def test_text_of_the_log_runs_no_script(tmp_path, opened):
    """A leader, a key and a value have markup. Its script would raise an error in the page."""
    log, key = str(tmp_path / "log"), MARKUP.encode()
    shard = partition_of_key(key, 2)
    with open_log(log) as made:
        made.create(2)
    with Node(log, address=MARKUP, folder=tmp_path / "other") as other:
        other.lead(shard)
        other.put(key, key)
        with serving(tmp_path, 1, log=log) as [node]:
            page = opened(node)
            expect(cell(page, shard, "leader")).to_have_text(MARKUP, timeout=WITHIN_MS)
            with page.expect_download() as download, pytest.raises(Error, match="Download is starting"):
                page.goto(f"http://{node.address}{path_of_key(key)}?stale=true")
            assert download.value.path().read_bytes() == key


def test_refused_writes_are_counted(nodes, client, opened):
    client.put(b"page", b"1")
    leader = leader_of(nodes, path_of_key(b"page"))
    page = opened(next(each for each in nodes if each.address == leader))
    shown = cell(page, partition_of_key(b"page", 2), "refused writes")
    before = int(shown.text_content().replace(",", ""))
    with pytest.raises(VersionMismatchError):
        client.put(b"page", b"2", expected_version=None)
    expect(shown).to_have_text(f"{before + 1:,}", timeout=WITHIN_MS)


@pytest.mark.full
def test_page_reports_a_stopped_node_and_its_return(tmp_path, opened):
    with serving(tmp_path, count=1) as (node,):
        page = opened(node)
        state = page.get_by_role("status")
        node.signal(signal.SIGSTOP)
        expect(state).to_contain_text("has not answered since", timeout=WITHIN_MS)
        node.signal(signal.SIGCONT)
        expect(state).to_contain_text("as of", timeout=WITHIN_MS)
        expect(page.locator("tbody tr")).to_have_count(2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE])
def test_it_fits_and_can_be_read(nodes, opened, scheme, viewport):
    page = opened(nodes[0], viewport=viewport, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    expect(cell(page, 0, "upcoming offset")).to_be_visible()
    text, back = (page.evaluate(f"getComputedStyle(document.body).{each}") for each in ("color", "backgroundColor"))
    assert contrast(text, back) >= LEGIBLE


def contrast(*colours):
    """Return the contrast ratio of WCAG 2 for two colors in the format of a browser."""
    lightness = sorted(sum(map(operator.mul, WEIGHTS, map(linear, re.findall(r"\d+", each)))) for each in colours)
    return (lightness[1] + 0.05) / (lightness[0] + 0.05)


def linear(channel):
    part = int(channel) / 255
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
