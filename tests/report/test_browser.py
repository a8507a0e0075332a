"""Pages as a browser lays them out. Needs Debian's `chromium`; fails where it is missing."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

REPORTS = Path(__file__).parents[2] / "reports"
COUNT = """marks => marks.map(each => each.children.length).reduce((a, b) => a + b, 0)"""
FILLED = """() => [document.querySelector("figure svg")].every(svg =>
  Math.abs(svg.getBoundingClientRect().width - svg.parentElement.parentElement.clientWidth) < 5)"""
WIDEST = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright  # a second

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Opens a file; the page must raise no error, and ask nothing of anybody."""
    pages, errors, asked = [], [], []

    def open_page(path, width=1200, **options):
        page = chromium.new_page(viewport={"width": width, "height": 900}, **options)
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.absolute().as_uri())
        page.wait_for_selector("body")
        return page

    yield open_page
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    for page in pages:
        page.close()


def test_figures_fill_the_page_and_nothing_overflows(reported, opened):
    names = {f"figure-{file.stem}" for file in (reported / "figures").glob("*.svg")}
    for width in (1200, 390):
        page = opened(reported / "index.html", width)
        page.wait_for_function(f"document.querySelectorAll('figure svg').length == {len(names)}")
        assert {each.get_attribute("id") for each in page.query_selector_all("figure")} == names
        assert page.evaluate(WIDEST) <= width
        first = page.query_selector("figure svg")
        assert first.get_attribute("aria-label")
        page.wait_for_function(FILLED)


def test_what_is_unfolded_is_short(reported, opened):
    page = opened(reported / "index.html")
    page.evaluate("document.querySelectorAll('figure svg').forEach(svg => svg.remove())")
    assert len(page.inner_text("main").split()) <= 250
    rows = page.query_selector_all("table.answer tbody tr")
    assert 0 < len([row for row in rows if row.is_visible()]) <= 6


def test_what_the_browser_draws_is_what_the_table_says(reported, opened):
    """A point for each scheme and number of workers that has an accuracy, and for each speed."""
    table = pd.read_csv(reported / "tables/decision.csv").query("n_finished > 0")
    first = table[table["batch_size"] == table["batch_size"].iloc[0]]
    page = opened(reported / "index.html")
    page.wait_for_selector("#figure-scale svg")
    drawn = page.eval_on_selector_all("#figure-scale svg .mark-symbol.role-mark", COUNT)
    assert drawn == 2 * len(first)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_that_axe_finds_keeps_anybody_from_reading(theme, reported, opened):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(opened(reported / "index.html", color_scheme=theme))
    assert [each["id"] for each in found.response["violations"]] == []
    assert len(found.response["passes"]) > 10
