"""The page of a load's report: its content, and its display in a browser without any network."""

import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect, sync_playwright

from spark_cas.core.outcome import Appends
from spark_cas.core.plan import PartitionResult, Progress
from spark_cas.programs.errors import ExitCode
from spark_cas.programs.load_progress import Phase, Sample
from spark_cas.programs.load_report import JobRows, LoadReport, page_of
from tests.executables import executable

WIDE, NARROW = {"width": 1200, "height": 900}, {"width": 400, "height": 800}
HOSTILE = "<script>document.title = 'run'</script><img src=x onerror=alert(1)>\"'&$title"
LEGIBLE = 4.5
"""The contrast ratio of WCAG 2, level AA."""
COLORS = """() => [...document.querySelectorAll("h1, p, dt, dd, th, td, svg text")].map(each => {
    const style = getComputedStyle(each)
    return each.tagName === "text" ? style.fill : style.color
})"""


def partition(number, rows=1000):
    progress = Progress("j", number, rows, "d", 40, 40 + rows, 3, 1, True, 0, "t")
    appends = Appends(attempts=5, aborted_rows=17, timestamp_ms=1, has_offset=True, start_offset=0)
    return PartitionResult(progress, resumed_rows=100, resolved=2, appends=appends)


SAMPLES = (
    Sample(1.0, Phase.STARTING, 0),
    *(Sample(2.0 + each, Phase.ROUTING, 500 * each) for each in range(4)),
    *(Sample(6.0 + each, Phase.APPENDING, 600 * each) for each in range(4)),
)
COMPLETE = LoadReport(
    "flights", "file:///log", ExitCode.COMPLETE, 10.0, JobRows((partition(0), partition(1, 2000))), 2000, None
)
REPORT = replace(COMPLETE, samples=SAMPLES)
FAILED = replace(REPORT, exit_code=ExitCode.REFUSED, error="CONFLICT", message="in the way", next_offsets={0: 57})


@pytest.mark.parametrize(
    "report",
    [replace(FAILED, job=HOSTILE), replace(FAILED, log=HOSTILE), replace(FAILED, message=HOSTILE)],
    ids=["job", "log", "message"],
)
def test_text_of_the_input_is_escaped(report):
    page = page_of(report)
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_page_has_phases_rates_and_partitions():
    page = page_of(REPORT)
    # The samples before 6 s read 1,500 rows; those after it and the end of the run appended 2,000.
    phases = dict(re.findall(r"</i>(\w+) ([0-9.]+) s</span>", page))
    assert phases == {"starting": "1.0", "routing": "4.0", "appending": "5.0"}
    rates = re.findall(r"<title>([0-9.]+) s: ([0-9,]+) rows/s (\w+)</title>", page)
    for phase, rows in (("routing", 1500), ("appending", 2000)):
        total = sum(int(rate.replace(",", "")) * 0.5 for _, rate, kind in rates if kind == phase)
        assert total == pytest.approx(rows, rel=0.01)
    assert "<td>1</td>" in page
    assert "40 to 2,040" in page
    assert "aborted rows</dt><dd>34<" in page


def test_failed_load_shows_its_error_and_next_offsets():
    page = page_of(replace(FAILED, job="Flights"))
    assert "Job &#x27;Flights&#x27; is not complete" in page
    assert "CONFLICT: in the way" in page
    assert "0: 57" in page


@pytest.mark.parametrize(
    "report",
    [
        replace(COMPLETE, job=None, in_log=None, appended_rows=None),
        replace(COMPLETE, seconds=0.0),
        replace(COMPLETE, already_complete=True, appended_rows=0),
        replace(FAILED, in_log=JobRows(), samples=(), appended_rows=0),
    ],
    ids=["no job", "no time", "complete before", "no rows"],
)
def test_page_of_a_load_without_samples(report):
    assert page_of(report).endswith("</html>\n")


@pytest.fixture
def pages(load, tmp_path):
    """The pages that three loads wrote, by job: its name is invalid, the log rejects it, and it is complete."""
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": range(1000)}), rows)
    command = ("--input", str(rows), "--key", "string(id)", "--value-json", "--partitions", "4")
    loads = {
        HOSTILE: ([], ExitCode.USAGE),
        "ahead": (["--expected-offsets", '{"0": 5}'], ExitCode.REFUSED),
        "flights": ([], ExitCode.COMPLETE),
    }
    pages = {job: tmp_path / f"{exit_code.name}.html" for job, (_, exit_code) in loads.items()}
    for job, (options, exit_code) in loads.items():
        assert load(*command, *options, "--job", job, "--report", str(pages[job]))[0] == exit_code
    return pages


@pytest.mark.browser
@pytest.mark.spark
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_page_is_readable_without_network(pages, scheme, viewport):
    complaints, requests = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport=viewport, color_scheme=scheme, offline=True)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text))
        for job, file in pages.items():
            page.goto(file.as_uri())
            expect(page.locator("h1")).to_have_text(f"Load of job {job}")
            assert page.title() == f"Load of job {job}"
            assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (luminance(background) > 0.5) == (scheme == "light")
            for color in set(page.evaluate(COLORS)):
                assert contrast(color, background) >= LEGIBLE, color
            page.screenshot(path=file.with_suffix(".png"), full_page=True)
        assert page.evaluate("document.querySelector('.scroll').scrollWidth") <= viewport["width"] - 32
        bars = page.locator("rect.appending").all()
        assert bars
        for each in bars:
            box = each.bounding_box()
            assert box is not None
            assert box["width"] > 0
        browser.close()
    assert requests == [file.as_uri() for file in pages.values()]
    assert not complaints


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color):
    shares = [int(each) / 255 for each in re.findall(r"\d+", color)[:3]]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
