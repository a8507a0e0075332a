"""Pages as a browser lays them out. Needs Debian's `chromium`; fails where it is missing."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

REPORTS = Path(__file__).parents[2] / "reports"
COUNT = """marks => marks.map(each => each.children.length).reduce((a, b) => a + b, 0)"""
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


def figures(page):
    """Size and label of each figure that is shown, by its name."""
    page.wait_for_selector("figure svg")
    found = {}
    for each in page.query_selector_all("figure"):
        svg = each.query_selector("svg")
        if svg and not each.query_selector(".chart").is_hidden():
            found[each.get_attribute("id")] = svg.bounding_box(), svg.get_attribute("aria-label")
    return found


def test_the_page_draws_answers_to_its_controls_and_nothing_overflows(reported, opened):
    page = opened(reported / "index.html")
    page.wait_for_selector("figure svg")
    names = {f"figure-{file.stem}" for file in (reported / "figures").glob("*.svg")}
    assert {each.get_attribute("id") for each in page.query_selector_all("figure")} == names
    room = page.evaluate("document.documentElement.clientWidth")
    for index in (0, 1):
        page.select_option("#situation", index=index)
        found = figures(page)
        assert found
        assert all(box["width"] > 300 and box["height"] > 60 for box, _ in found.values())
        assert all(box["x"] + box["width"] <= room for box, _ in found.values())
        assert all(label for _, label in found.values())
    for width in (1200, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(WIDEST) <= width


def test_what_the_browser_draws_is_what_the_table_says(reported, opened):
    """Points of the decision: a speed-up and an accuracy of each scheme that has one."""
    table = pd.read_csv(reported / "tables/decision.csv").query("workers == 2")
    page = opened(reported / "index.html")
    page.wait_for_selector("#figure-decision svg")
    drawn = page.eval_on_selector_all("#figure-decision svg .mark-symbol.role-mark", COUNT)
    first = table[table["batch_size"] == table["batch_size"].iloc[0]]
    speeds = first["speedup_mean"].where(first["tier"] != "never").notna().sum()
    ends = 2  # of the axis of speed-ups, which nobody sees
    assert drawn == speeds + first["one_worker_top1_difference_mean"].notna().sum() + ends


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_that_axe_finds_keeps_anybody_from_reading(theme, reported, opened):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(opened(reported / "index.html", color_scheme=theme))
    assert [each["id"] for each in found.response["violations"]] == []
    assert len(found.response["passes"]) > 10
