"""The page of a study has the numbers of its tables, and nothing that a stranger wrote as markup.

A study with little in it has an honest page, or an error that says what to run first.
"""

import hashlib
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pandas as pd
import pytest

from paceline.analysis.analyse import CONCLUSIONS, Conclusion
from paceline.command.terminal import plain_table, show
from paceline.errors import SettingError
from paceline.record import result
from paceline.record.result import NUMBERS, Number, measured
from paceline.report.findings import read_findings
from paceline.report.page import charts, single_page
from paceline.report.render import markdown
from tests.made_decisions import arm, write_decided
from tests.made_reports import (
    fail,
    made_two_schemes,
    make_run,
    write_page,
    write_points,
    write_reports,
)

FIGURES = {"time", "scale", "phases"}


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
    assert "real seconds" not in reports([make_run(real_seconds=7.0)])


def test_the_first_screen_has_at_most_six_rows_and_the_others_are_folded(reports):
    page = reports([make_run(batch_size=2**n, seed=seed) for n in range(8) for seed in (0, 1)])
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


def test_before_collect(tmp_path):
    with pytest.raises(SettingError, match=r"study: .*paceline sweep made"):
        write_page(tmp_path / "made")


def test_no_point_finished(reports):
    page = reports([fail(make_run(seed=0)), fail(make_run(seed=1), "diverged", "NaN")])
    for words in ("No run has finished yet", "0 of 2 runs finished", "ended with exit code 1"):
        assert words in page


def test_without_one_worker_there_is_no_target_and_no_baseline(reports):
    page = reports([make_run(workers=2, seed=seed) for seed in (0, 1)])
    assert 'id="figure-target"' not in page
    assert "Time to the target" not in page


TWO = ("sync_allreduce", "gossip")
SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("failed", "diverged")]


@pytest.mark.parametrize("status", ["finished", *SLOW])
def test_a_page_is_written_where_only_some_situations_have_something_to_draw(status, tmp_path):
    runs = [run for scheme in TWO for run in arm(scheme, None, 0.7)]
    for run in [run for scheme in TWO for run in arm(scheme, 801, 0.9, workers=2)]:
        runs.append(run if status == "finished" else fail(run, status, "it did"))
    folder = write_decided(tmp_path / "made", runs)
    assert write_page(folder).is_file()
    for chart in charts(read_findings(folder)):
        assert chart.rows


def test_a_study_without_evaluations_compares_throughput(tmp_path):
    scores = dict.fromkeys(("top1", "test_top1", "validation_loss"))
    kinds = [("sync_allreduce", 1), ("sync_allreduce", 2), ("async_parameter_server", 2)]
    runs = [make_run(*kind, seed=seed, **scores) for kind in kinds for seed in (0, 1, 2)]
    folder = write_reports(tmp_path / "made", runs)
    write_points(folder, {"curves": []})
    drawn = {chart.name: chart for chart in charts(read_findings(folder))}
    assert len(drawn["scale"].spec["concat"]) == 1  # without the panel of accuracies
    assert "by images/s" in write_page(folder).read_text()


STEPS = Number("steps_of_all", "images", lambda observed: observed.steps, "steps of all workers")


def test_a_number_that_is_declared_is_in_the_record_the_summary_and_the_page(reports, monkeypatch):
    monkeypatch.setattr(result, "NUMBERS", [STEPS])
    assert measured(SimpleNamespace(steps=7)) == {"steps_of_all": 7}  # type: ignore[arg-type]
    monkeypatch.setattr(result, "NUMBERS", [*NUMBERS, STEPS])
    page = reports([make_run(seed=s, steps_of_all=1000 + s) for s in (0, 2)])
    (row,) = pd.read_csv(reports.folder / "tables/configurations.csv").to_dict("records")
    assert (row["steps_of_all_mean"], row["steps_of_all_n"]) == (pytest.approx(1001, rel=1e-5), 2)
    assert page.count('<th scope="col">steps of all workers</th>') == 1
    assert ">1,001<br>" in page
    # and runs of code that did not declare it are still shown
    assert "steps of all workers" not in reports([make_run()])
    assert "steps_of_all_mean" not in pd.read_csv(reports.folder / "tables/configurations.csv")


def test_each_column_has_a_place_of_its_own():
    shown = [number for number in NUMBERS if number.heading]
    places = [(each.section, each.place) for each in shown if each.place != Number.place]
    assert len(set(places)) == len(places)


def test_a_conclusion_that_is_declared_is_written_and_linked(reports, monkeypatch):
    def slowest(tables):
        return tables.runs.groupby(["kind", "scheme"], as_index=False)["seconds"].max()

    new = Conclusion("slowest_runs", slowest)
    for module in ("findings", "page"):
        monkeypatch.setattr(f"paceline.report.{module}.CONCLUSIONS", [*CONCLUSIONS, new])
    page = reports([make_run(seconds=12.0)])
    assert len(pd.read_csv(reports.folder / "tables/slowest_runs.csv")) == 1
    assert page.count('href="tables/slowest_runs.csv"') == 1
