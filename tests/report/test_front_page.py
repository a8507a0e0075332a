"""The front page of all studies: cards, tiers in words, and nothing from elsewhere."""

import json
import re
import shutil
from argparse import Namespace

import pandas as pd
import pytest

from paceline.analysis.analyse import analyse
from paceline.analysis.exchanges import analyse_exchanges
from paceline.cli import command
from paceline.report.answer import choice
from paceline.report.front_page import dates, write_front_page
from paceline.report.tiers import MEANINGS, tier_of
from tests.made_reports import made_two_schemes, tie, write_reports, write_rows

EXCHANGE = {
    "status": "finished",
    "reason": "",
    "kind": "measured",
    "cluster": "local",
    "workers": 2,
    "num_bytes": 30000,
    "bytes_sent": 1,
    "bytes_received": 1,
    "bytes_formula": 1,
    "predicted_seconds": 1.0,
    "started": "2026-01-03T00:00:00+00:00",
    "hardware.cores": 4,
}


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    """Reports of a study with a page, of exchanges, and of a study that was not analysed."""
    root = tmp_path_factory.mktemp("front")
    reports = root / "reports"
    runs = [
        run | {"started": f"2026-01-0{1 + run['seed']}T10:00:00+00:00", "wall_seconds": 60.0}
        for run in two()
    ]
    write_reports(reports / "made", runs)
    analyse(reports / "made")
    write_exchanges(reports / "sums")
    analyse_exchanges(reports / "sums")
    write_reports(reports / "later")
    options = Namespace(study="made", check=False, single=None, verify=False, records=None)
    assert command("report").run(options, root) == 0
    return reports


def two():
    return made_two_schemes(spread=30)


def write_exchanges(folder):
    folder.mkdir()
    rows = [
        EXCHANGE | {"collective": name, "key": name, "turn": turn, "seconds": seconds + turn / 100}
        for name, seconds in (("ring", 1.0), ("tree", 3.0))
        for turn in range(3)
    ]
    write_rows(folder / "exchanges.csv", list(rows[0]), rows)
    about = {"study": "sums", "question": "Which sum?", "facets": []}
    (folder / "study.json").write_text(json.dumps(about))
    tie(folder)


def page_of(reports):
    return (reports / "index.html").read_text()


def card_of(reports, study):
    cards = page_of(reports).split("<li>")
    return next(card for card in cards if f'"{study}/index.html"' in card)


def test_the_front_page_reads_no_rows_of_points(front, monkeypatch):
    """They would be most of its time, and no card has a number of them."""
    before = page_of(front)
    monkeypatch.setattr("paceline.analysis.tables.read_archive", None)
    write_front_page(front)
    assert page_of(front) == before


def test_a_card_has_question_answer_figure_kind_dates_points_and_link(front):
    card = card_of(front, "made")
    for text in (
        ">Does a second worker help, and what does asynchrony cost in accuracy?</a></h2>",
        '<span class="situation">2 workers:</span>',
        "times as fast as the best single worker; 3 of 3 runs reached",
        '<span class="kind">measured</span>',
        "12 of 12 points finished · 2026-01-01 to 2026-01-03",
    ):
        assert text in card
    (figure, alt) = re.search(r'<img src="([^"]+)" alt="([^"]+)" loading="lazy">', card).groups()
    assert (front / figure).is_file()
    assert alt.endswith(": the first figure of made")


def test_exchanges_have_a_card_and_what_was_not_analysed_is_named(front):
    card = card_of(front, "sums")
    assert ">Which sum?</a>" in card
    assert "2 of 2 exchanges finished · 2026-01-03" in card
    assert 'use <span class="use">ring</span>' in card
    assert "Not shown: later: there is no later/tables/" in page_of(front)
    assert "first: paceline report later" in page_of(front)


def test_the_matrix_says_each_tier_of_the_table_in_words(front):
    decision = pd.read_csv(front / "made/tables/decision.csv")
    rows = decision[decision["workers"] == 2].set_index("scheme")
    text = page_of(front)
    (found,) = re.findall(r'<tr><th scope="row">2 workers</th>(.*?)</tr>', text, re.DOTALL)
    cell = r'<span class="tier ([\w-]+)">([\w ]+?)(?: <small>(.*?)</small>)?</span>'
    found = re.findall(cell, found)
    cells = [(style, word) for style, word, _ in found]
    several = decision[decision["workers"] == 2].assign(less_accurate_than="")
    chosen = choice(several).row["scheme"]
    assert [more for *_, more in found] == [
        "recommended" if name == chosen else ""
        for name in ("sync_allreduce", "async_parameter_server")
    ]
    assert [word for _, word in cells] == [
        rows.loc[name, "tier"] for name in ("sync_allreduce", "async_parameter_server")
    ]
    assert all(style == word.replace(" ", "-") for style, word in cells)
    heads = re.findall(r'<th scope="col">([^<]+)</th>', text)
    assert heads[:3] == ["situation", "all-reduce", "asynchronous servers"]


@pytest.mark.parametrize(
    ("tier", "edge", "word"),
    [
        ("behind", "", "behind"),
        ("behind", "largest training.lr", "not judged"),
        ("never", "largest training.lr", "not judged"),
        ("best", "largest training.lr", "best"),
        ("", "", ""),
        (float("nan"), "", ""),
    ],
)
def test_nothing_is_said_against_a_scheme_at_the_edge_of_its_search(tier, edge, word):
    assert tier_of({"tier": tier, "at_edge": edge}) == word
    assert word in ("", *MEANINGS)


def test_equal_tables_give_equal_bytes_wherever_they_are(front, tmp_path):
    before = page_of(front)
    shutil.copytree(front, tmp_path / "elsewhere/reports")
    again = write_front_page(tmp_path / "elsewhere/reports")
    assert again.read_text() == before


def test_it_loads_nothing_and_its_links_lead_somewhere(front):
    text = page_of(front)
    assert "<script" not in text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//|@import|url\(', text)
    links = [link.partition("#")[0] for link in re.findall(r'(?:href|src)="([^"#d][^"]*)"', text)]
    pages = {"sums/index.html"}  # `paceline report sums` was not run
    assert {link for link in links if not (front / link).is_file()} == pages


def test_studies_of_the_readme_come_first(front, tmp_path):
    for name in ("another", "schemes", "example"):
        shutil.copytree(front / "made", tmp_path / name)
    page = write_front_page(tmp_path).read_text()
    assert re.findall(r'<h2><a href="(\w+)/', page) == ["schemes", "example", "another"]


def test_published_numbers_are_counted_by_verdict(front, tmp_path):
    reports = tmp_path / "reports"
    shutil.copytree(front, reports)
    assert "Published numbers" not in page_of(reports)
    (reports / "predictions").mkdir()
    rows = [("judged", 0.05), ("judged", -0.2), ("judged", 0.3), ("calibrated", 0.0)]
    rows = [{"verdict": verdict, "error": error} for verdict, error in rows]
    write_rows(reports / "predictions/predictions.csv", list(rows[0]), rows)
    tie(reports / "predictions")
    write_front_page(reports)
    text = page_of(reports)
    line = "<th scope=row>judged</th><td>3</td><td>20.0 %</td><td>1</td><td>2</td>"
    assert line in text
    assert text.index(line) < text.index("<th scope=row>calibrated</th>")  # as in the file


def test_without_a_study_it_says_how_to_begin(tmp_path):
    assert "<code>make study</code>" in write_front_page(tmp_path).read_text()


def test_text_of_a_study_cannot_become_markup(tmp_path):
    analyse(write_reports(tmp_path / "made", two(), question="Is <b>this</b> bold?"))
    assert "Is &lt;b&gt;this&lt;/b&gt; bold?" in write_front_page(tmp_path).read_text()


def test_dates_are_days():
    late, early = "2026-02-02T00:00:01+00:00", "2026-01-31T23:59:59+00:00"
    assert dates(pd.DataFrame({"started": [late, early]})) == "2026-01-31 to 2026-02-02"
    assert dates(pd.DataFrame({"started": [late, ""]})) == "2026-02-02"
    assert dates(pd.DataFrame({"key": ["a"]})) == ""


def test_a_study_whose_table_was_changed_has_no_card_and_is_named(tmp_path, capsys):
    folder = write_reports(tmp_path / "made", two())
    analyse(folder)
    runs = folder / "runs.csv"
    runs.write_text(runs.read_text().replace("0.9", "0.99", 1))
    page = write_front_page(tmp_path).read_text()
    assert "Not shown: made: made/runs.csv" in page
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("paceline: made: made/runs.csv")
