"""Page of the study grid in Chromium: until it is drawn, and until a point of it answers."""

import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from benchmarks.row import row
from paceline.report.findings import read_findings
from paceline.report.page import report

REPORTS = Path(__file__).parent.parent / "reports"
TURNS = 5
LOAD, HOVER = 2.0, 0.1  # s

# from the movement of the pointer to the end of the frame in which the page answers
_HOVER = """async () => {
  const points = document.querySelectorAll("figure svg .mark-symbol.role-mark path");
  const times = [];
  for (const point of [...points].slice(0, 50)) {
    const box = point.getBoundingClientRect();
    const place = {bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};
    const started = performance.now();
    point.dispatchEvent(new PointerEvent("pointermove", place));
    point.dispatchEvent(new MouseEvent("mousemove", place));
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    times.push((performance.now() - started) / 1000);
  }
  return times;
}"""


def rows() -> list[dict[str, Any]]:
    page = report(read_findings(REPORTS / "grid"), REPORTS / "grid")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        found = [_opened(browser, page) for _ in range(TURNS)]
        browser.close()
    load = median(seconds for seconds, _ in found)
    hover = max(max(times) for _, times in found)
    name = f"page of {page.parent.name}"
    return [
        row(f"{name} until it is drawn", load, LOAD, "s", load / LOAD, "<= 2 s", load <= LOAD),
        row(f"{name}, slowest hover", hover, HOVER, "s", hover / HOVER, "<= 0.1 s", hover <= HOVER),
    ]


def _opened(browser: Browser, path: Path) -> tuple[float, list[float]]:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    started = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg")
    seconds = time.perf_counter() - started
    page.wait_for_timeout(500)
    times = page.evaluate(_HOVER)
    page.close()
    return seconds, times
