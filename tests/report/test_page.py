import hashlib
import re
from xml.etree import ElementTree

import pandas as pd
import pytest

from paceline.analysis.analyse import analyse
from paceline.report.page import report
from paceline.report.page_tables import losses
from tests.made_reports import made_runs, make_run, write_reports

FIGURES = {
    "throughput",
    "speedup",
    "efficiency",
    "accuracy",
    "validation_accuracy",
    "equal_time",
    "equal_updates",
    "time_to_target",
    "curve_samples",
    "curve_seconds",
    "staleness",
    "phases",
}


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_same_tables_give_the_same_bytes(reported, tmp_path):
    again = write_reports(tmp_path / "made")
    for _ in range(2):
        analyse(again)
        assert report(again) == again / "index.html"
        assert digests(again) == digests(reported)


def test_every_figure_is_there_and_is_svg(reported):
    files = list((reported / "figures").iterdir())
    assert {file.name for file in files} == {f"{name}.svg" for name in FIGURES}
    for file in files:
        assert ElementTree.parse(file).getroot().tag.endswith("svg")
        assert "<dc:date>" not in file.read_text()


def test_figures_of_earlier_settings_go(tmp_path):
    folder = write_reports(tmp_path / "made")
    (folder / "figures").mkdir()
    (folder / "figures" / "old.svg").write_text("")
    analyse(folder)
    report(folder)
    assert not (folder / "figures" / "old.svg").exists()


def test_links_resolve(reported):
    readme = re.findall(r"\]\(([^)]+)\)", (reported / "README.md").read_text())
    page = re.findall(r'<a href="([^"]+)"', (reported / "index.html").read_text())
    assert len(readme) > len(FIGURES)
    assert [link for link in (*readme, *page) if not (reported / link).is_file()] == []


def test_the_page_loads_nothing(reported):
    page = (reported / "index.html").read_text()
    tags = re.findall(r"<(script|img|iframe|object|embed|link|image)\b([^>]*)", page)
    assert tags == [("link", ' rel="icon" href="data:,"')]
    assert not re.findall(r"@import|url\((?!#)", page)
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)


def test_ids_and_what_refers_to_them_agree(reported):
    page = (reported / "index.html").read_text()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)) <= {
        pair for name in ids for pair in ((name, ""), ("", name))
    }


@pytest.mark.parametrize("page", ["index.html", "README.md"])
def test_numbers_are_those_of_the_tables(reported, page):
    text = re.sub(r"<br>", " ", (reported / page).read_text())
    text = re.sub(r"<[^>]+>", "", text)
    for row in pd.read_csv(reported / "tables/summary.csv").to_dict("records"):
        mean, low, high = (row[f"images_per_second_{part}"] for part in ("mean", "low", "high"))
        n = row["images_per_second_n"]
        assert f"{mean:,.0f} ({low:,.0f} to {high:,.0f}), n = {n}" in text
        mean, low, high = (100 * row[f"top1_{part}"] for part in ("mean", "low", "high"))
        assert f"{mean:.1f} % ({low:.1f} to {high:.1f}), n = {n}" in text
    for row in pd.read_csv(reported / "tables/scaling.csv").to_dict("records"):
        mean, low, high = (row[f"speedup_{part}"] for part in ("mean", "low", "high"))
        assert f"{mean:.2f} ({low:.2f} to {high:.2f}), n = {row['speedup_n']}" in text


def test_the_order_is_the_readers(reported):
    page = (reported / "index.html").read_text()
    parts = ("Does a second worker", "Before you believe", "Short answer", "figure-throughput")
    places = [page.index(part) for part in (*parts, ">Summary<", "All points", "Made with")]
    assert places == sorted(places)


def test_kinds_are_named_and_never_mixed(reports):
    both = [make_run(seed=s) for s in (0, 1)]
    both += [make_run(seed=s, kind="virtual", key=f"v{s}", images_per_second=100.0) for s in (0, 1)]
    page = reports(both)
    assert "Numbers marked <b>measured</b>" in page
    assert "Numbers marked <b>virtual</b>" in page
    means = re.findall(r"<td>([\d,]+)<br>.*?<td>(measured|virtual)</td></tr>", page)
    assert ("100", "virtual") in means
    assert all(rate != "100" for rate, kind in means if kind == "measured")


def test_text_of_a_record_cannot_become_markup(reports):
    runs = [*made_runs()[:3], make_run(seed=9, status="failed", reason="<b>|tensor|</b>")]
    page = reports(runs)
    assert "&lt;b&gt;|tensor|&lt;/b&gt;" in page
    assert "<b>|tensor|" not in page


def test_real_seconds_stand_beside_virtual_ones(findings):
    real = {"real_seconds": 70.0, "real_images_per_second": 1371.0}
    table = losses(findings([make_run(kind="virtual", seconds=9.0, **real)]))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["seconds of the training clock"] == "9.00 (no interval), n = 1"
    assert row["real seconds"] == "70.0 (no interval), n = 1"
    assert row["real images/s"] == "1,371 (no interval), n = 1"


@pytest.mark.parametrize("run", [{"kind": "virtual"}, {"kind": "paced", "real_seconds": 7.0}])
def test_real_seconds_are_not_invented_nor_repeated(findings, run):
    assert "real seconds" not in losses(findings([make_run(**run)])).columns


def test_the_tables_that_there_are_are_linked(reported):
    page = (reported / "index.html").read_text()
    assert 'href="timeline.csv"' in page
    assert 'href="tuning.csv"' not in page
