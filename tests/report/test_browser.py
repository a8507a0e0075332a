"""The page as a browser lays it out. Needs Debian's `chromium`; fails where it is missing."""

import html
import json
import re
import subprocess

import pandas as pd
import pytest

# The page cannot be asked from outside (file:// has no origin), so a copy reports on itself.
MEASURE = """<script>
const count = (place) => [...place.querySelectorAll("svg .mark-symbol.role-mark")]
  .map((marks) => marks.children.length).reduce((a, b) => a + b, 0);
const look = () => [...document.querySelectorAll("figure")].map((figure) => {
  const svg = figure.querySelector("svg");
  const box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
  return {id: figure.id, width: box.width, height: box.height, points: count(figure),
          label: svg && svg.getAttribute("aria-label"),
          hidden: figure.querySelector(".chart").hidden};
});
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
addEventListener("load", () => setTimeout(async () => {
  const first = look();
  const root = document.documentElement;
  const wide = Math.max(root.scrollWidth, document.body.scrollWidth);
  if (situation) { situation.selectedIndex = 1; await change(); }
  const second = look();
  document.getElementById("all-points").open = true;
  points();
  const table = document.getElementById("points-table");
  const all = table.tBodies[0].rows.length;
  table.parentElement.parentElement.querySelector("input").value = "async";
  table.parentElement.parentElement.querySelector("input").dispatchEvent(new Event("input"));
  const found = [...table.tBodies[0].rows].filter((row) => !row.hidden).length;
  table.tBodies[0].rows[0].querySelector("button").click();
  const command = document.getElementById("point-command").textContent;
  parent.postMessage(JSON.stringify(
    {first, second, all, found, command, errors, wide, inner: innerWidth, view: root.clientWidth,
     opened: document.getElementById("point").open,
     loaded: performance.getEntriesByType("resource").map((r) => r.name)}), "*");
}, 2500));
</script></body>"""
FRAME = """<!doctype html><pre id="seen"></pre><script>
addEventListener("message", (m) => { document.getElementById("seen").textContent = m.data; });
</script><iframe src="measured.html" width="{width}" height="900" style="border:0"></iframe>"""


def laid_out(page, width, folder):
    """What the page says of itself in a frame of this width; a window cannot be so narrow."""
    before, _, after = page.read_text().rpartition("</body>")
    (folder / "measured.html").write_text(f"{before}{MEASURE}{after}")
    frame = folder / "frame.html"
    frame.write_text(FRAME.replace("{width}", str(width)))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--disable-background-networking", f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=9000", "--dump-dom", "--window-size=1400,1000"]
    done = subprocess.run(
        [*command, frame.as_uri()], capture_output=True, text=True, timeout=50, check=True
    )
    seen = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, re.DOTALL)
    assert seen, done.stderr[-2000:]
    return json.loads(html.unescape(seen[1]))


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_draws_answers_to_its_controls_and_nothing_overflows(reported, tmp_path, width):
    seen = laid_out(reported / "index.html", width, tmp_path)
    assert seen["errors"] == []
    assert seen["inner"] == width
    assert seen["wide"] <= seen["view"]
    assert seen["loaded"] == []
    names = {f"figure-{file.stem}" for file in (reported / "figures").glob("*.svg")}
    for drawn in (seen["first"], seen["second"]):
        assert {figure["id"] for figure in drawn} == names
        shown = [figure for figure in drawn if not figure["hidden"]]
        assert all(f["width"] > 300 and f["height"] > 60 and f["label"] for f in shown)
    assert (seen["all"], seen["found"]) == (24, 12)
    assert seen["opened"]
    assert seen["command"].startswith("paceline train experiments=made scheme=")


@pytest.mark.slow
def test_what_the_browser_draws_is_what_the_table_says(reported, tmp_path):
    """Points of the decision: a speed-up and an accuracy of each scheme that has one."""
    table = pd.read_csv(reported / "tables/decision.csv").query("workers == 2")
    seen = laid_out(reported / "index.html", 1200, tmp_path)
    drawn = {figure["id"]: figure["points"] for figure in seen["first"]}
    first = table[table["batch_size"] == table["batch_size"].iloc[0]]
    speeds = first["speedup_mean"].where(first["tier"] != "never").notna().sum()
    assert drawn["figure-decision"] == speeds + first["top1_difference_mean"].notna().sum()
