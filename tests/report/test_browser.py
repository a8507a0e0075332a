"""The page as a browser lays it out. Needs Debian's `chromium`; fails where it is missing."""

import html
import json
import re
import subprocess

import pytest

# The page cannot be asked from outside (file:// has no origin), so a copy reports on itself.
MEASURE = """<script>
addEventListener("load", () => {
  const size = (box) => [box.getBoundingClientRect().width, box.getBoundingClientRect().height];
  const figures = Object.fromEntries(
    [...document.querySelectorAll("figure")].map((f) => [f.id, size(f.querySelector("svg"))]));
  const root = document.documentElement;
  parent.postMessage(JSON.stringify(
    {figures, inner: innerWidth, view: root.clientWidth,
     wide: Math.max(root.scrollWidth, document.body.scrollWidth),
     loaded: performance.getEntriesByType("resource").map((r) => r.name)}), "*");
});
</script></body>"""
FRAME = """<!doctype html><pre id="seen"></pre><script>
addEventListener("message", (m) => { document.getElementById("seen").textContent = m.data; });
</script><iframe src="measured.html" width="{width}" height="900" style="border:0"></iframe>"""


def laid_out(page, width, folder):
    """What the page says of itself in a frame of this width; a window cannot be so narrow."""
    (folder / "measured.html").write_text(page.read_text().replace("</body>", MEASURE))
    frame = folder / "frame.html"
    frame.write_text(FRAME.replace("{width}", str(width)))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--disable-background-networking", f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", "--window-size=1400,1000"]
    done = subprocess.run(
        [*command, frame.as_uri()], capture_output=True, text=True, timeout=50, check=True
    )
    seen = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, re.DOTALL)
    assert seen, done.stderr[-2000:]
    return json.loads(html.unescape(seen[1]))


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_figures_are_laid_out_and_nothing_overflows(reported, tmp_path, width):
    seen = laid_out(reported / "index.html", width, tmp_path)
    assert seen["inner"] == width
    assert seen["wide"] <= seen["view"]
    assert seen["loaded"] == []
    names = {f"figure-{file.stem}" for file in (reported / "figures").glob("*.svg")}
    assert set(seen["figures"]) == names
    assert all(w > 300 and h > 150 for w, h in seen["figures"].values())
