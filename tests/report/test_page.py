import hashlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from paceline.command.terminal import plain_table, show
from paceline.report.page import single_page
from paceline.report.page_tables import page_tables
from paceline.report.render import markdown
from tests.made_reports import made_two_schemes, make_run, write_page, write_reports

REPORTS = Path(__file__).parents[2] / "reports"
FIGURES = {"target", "time", "scale", "phases"}


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_same_tables_give_the_same_bytes(reported, tmp_path):
    """Whatever an earlier report has left."""
    again = write_reports(tmp_path / "made")
    (again / "figures").mkdir(exist_ok=True)
    (again / "figures" / "old.svg").write_text("")
    assert write_page(again) == again / "index.html"
    assert digests(again) == digests(reported)
    figures = list((reported / "figures").iterdir())
    assert {file.name for file in figures} == {f"{name}.svg" for name in FIGURES}
    assert all(ElementTree.parse(file).getroot().tag.endswith("svg") for file in figures)


def visible(page):
    """The page without its scripts and styles."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)


def test_links_resolve(reported):
    readme = re.findall(r"\]\(([^)]+)\)", (reported / "README.md").read_text())
    page = re.findall(r'<a href="([^"#]+)"', visible((reported / "index.html").read_text()))
    assert {"figure.svg", "runs.csv"} <= set(readme)
    assert [link for link in (*readme, *page) if not (reported / link).is_file()] == []


def test_the_page_loads_only_the_library_beside_its_folder(reported):
    page = (reported / "index.html").read_text()
    tags = re.findall(r"<(script|img|iframe|object|embed|link|image)\b([^>]*)", visible(page))
    images = {f' src="figures/{name}.svg" alt=' for name in FIGURES}
    assert tags[0] == ("link", ' rel="icon" href="data:,"')
    assert all(tag == "img" and text.startswith(tuple(images)) for tag, text in tags[1:])
    scripts = re.findall(r"<script\b([^>]*)>", page)
    assert [text for text in scripts if "src" in text] == [' src="../vega.js"']
    single = single_page(reported / "index.html")
    assert not re.findall(r"<script\b[^>]*src", single)
    assert (reported.parent / "vega.js").read_text() in single
    assert not re.findall(r"@import|url\((?!#)", re.findall(r"<style>(.*?)</style>", page, re.S)[0])
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', visible(page))


def test_ids_and_what_refers_to_them_agree(reported):
    page = visible((reported / "index.html").read_text())
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    assert set(re.findall(r'aria-labelledby="([^"]+)"', page)) <= set(ids)


def test_numbers_are_those_of_the_tables(reported):
    text = re.sub(r"<br>", " ", visible((reported / "index.html").read_text()))
    text = re.sub(r"<[^>]+>", "", text)
    for row in pd.read_csv(reported / "tables/configurations.csv").to_dict("records"):
        mean, low, high = (row[f"images_per_second_{part}"] for part in ("mean", "low", "high"))
        n = row["images_per_second_n"]
        assert f"{mean:,.0f} ({low:,.0f} to {high:,.0f}), n = {n}" in text
        mean, low, high = (100 * row[f"top1_{part}"] for part in ("mean", "low", "high"))
        assert f"{mean:.1f} % ({low:.1f} to {high:.1f}), n = {n}" in text
        mean, low, high = (row[f"speedup_{part}"] for part in ("mean", "low", "high"))
        assert f"{mean:.2f} ({low:.2f} to {high:.2f}), n = {row['speedup_n']}" in text


def test_kinds_are_named_and_never_mixed(reports):
    both = [make_run(seed=s) for s in (0, 1)]
    both += [make_run(seed=s, kind="virtual", key=f"v{s}", images_per_second=100.0) for s in (0, 1)]
    page = reports(both)
    assert "Measured: real processes" in page
    assert "Virtual: gradients" in page
    means = re.findall(r"<td[^>]*>([\d,]+)<br>.*?<td[^>]*>(measured|virtual)</td></tr>", page)
    assert ("100", "virtual") in means
    assert all(rate != "100" for rate, kind in means if kind == "measured")


def test_real_seconds_stand_beside_virtual_ones(findings):
    real = {"real_seconds": 70.0, "real_images_per_second": 1371.0}
    table = losses(findings([make_run(kind="virtual", seconds=9.0, **real)]))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert "real seconds" not in losses(findings([make_run(real_seconds=7.0)])).columns
    assert row["seconds of the training clock"] == "9.00 (no interval), n = 1"
    assert row["real seconds"] == "70.0 (no interval), n = 1"
    assert row["real images/s"] == "1,371 (no interval), n = 1"


def losses(findings):
    return next(table for table in page_tables(findings) if table.name == "Every configuration")


def test_the_first_screen_has_at_most_six_rows_and_the_others_are_folded(tmp_path):
    batches = range(8)
    runs = [make_run(batch_size=2**n, seed=seed) for n in batches for seed in (0, 1)]
    page = write_page(write_reports(tmp_path / "made", runs)).read_text()
    first, folded = page.split("<details>", 1)
    assert first.count("<tr>") == 1 + 6
    assert folded.split("</details>")[0].count("<tr>") == 1 + 2


BAD = "<script>alert(1)</script> [a](javascript:b) ![c](d) `e` | f \x1b[2J & g"


def test_no_text_of_a_record_becomes_markup_of_a_page_or_commands_of_a_terminal(tmp_path, capsys):
    """In the question, in the name of the study, and in texts of its records."""
    texts = {"reason": BAD, "hardware.cpu": BAD, "evaluated": BAD}
    runs = [run | texts for run in made_two_schemes(spread=30)]
    folder = write_reports(tmp_path / "made", runs, question=BAD, study=BAD)
    page = write_page(folder).read_text()
    readme = (folder / "README.md").read_text()
    escaped = r"&lt;script>alert(1)&lt;/script> \[a\](javascript:b) !\[c\](d) \`e\` \| f "
    assert markdown(BAD) == escaped + r"\\x1b\[2J &amp; g"
    assert "<script>alert" not in page
    assert "<script>alert" not in readme
    assert markdown(BAD) in readme
    assert "\x1b" not in readme
    show([BAD, plain_table(["x"], [[BAD]])])
    assert "\x1b" not in capsys.readouterr().out
