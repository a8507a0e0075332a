"""What the rates of tuned points were tuned on: a table of tuning.csv, and of no result."""

import json

import pytest

from paceline.record.rows import TUNING
from paceline.report.chart.accuracy_charts import tuning_chart
from paceline.report.findings import read_findings
from paceline.report.how_it_was_run import how_it_was_run
from paceline.report.page_tables import tuning
from paceline.report.words import scheme_name
from tests.made_reports import make_run, write_page, write_reports, write_rows

COLUMNS = "key scheme workers lr top1 status chosen"
BESIDE = {"seed": 100, "momentum": 0.9, "chance": 0.1, "test_top1": 0.8, "at_edge": ""}
TRIED = [
    ("t0", "sync_allreduce", 1, 0.05, 0.87654321, "finished", "false"),
    ("t1", "sync_allreduce", 1, 0.00078125, 0.9, "finished", "true"),
    ("t2", "sync_allreduce", 4, 0.05, "", "failed", "false"),
    ("t3", "sync_allreduce", 4, 0.00078125, 0.1, "diverged", "true"),
]


@pytest.fixture
def tuned(tmp_path):
    """A folder of tables with these rows of tuning.csv: `tuned(tried)`."""

    def write(tried, columns=COLUMNS):
        names = columns.split()
        folder = write_reports(tmp_path / "made", [make_run(seed=seed) for seed in (0, 1)])
        rows = [BESIDE | dict(zip(names, row, strict=True)) for row in tried]
        write_rows(folder / "tuning.csv", list(dict.fromkeys([*names, *TUNING])), rows)
        return folder

    return write


def test_every_rate_tried_is_there_and_the_chosen_one_is_marked(tuned):
    table = tuning(read_findings(tuned(TRIED)))
    assert table.source == "tuning.csv"
    names = ["training.lr", "training.momentum", "top-1, validation", "status", "chosen"]
    assert list(table.columns) == ["scheme", "workers", *names]
    assert table.rows == [
        ["sync_allreduce", "1", "0.05", "0.9", "87.65 %", "finished", ""],
        ["sync_allreduce", "1", "0.00078125", "0.9", "90.00 %", "finished", "yes"],
        ["sync_allreduce", "4", "0.05", "0.9", "–", "failed", ""],  # noqa: RUF001
        ["sync_allreduce", "4", "0.00078125", "0.9", "10.00 %", "diverged", "yes"],
    ]


def test_a_study_of_one_scheme_names_it_in_its_curve_of_trials(tuned):
    """tuning.csv has a column of the axes only."""
    columns = COLUMNS.replace("scheme workers", "batch_size")
    chart = tuning_chart(read_findings(tuned([(key, *rest) for key, _, *rest in TRIED], columns)))
    assert {row["scheme"] for row in chart.rows} == {scheme_name("sync_allreduce")}


def test_the_page_shows_it_behind_the_results(tuned):
    page = write_page(tuned(TRIED)).read_text()
    order = (">Summary<", "All points", ">Tuning<", "87.65 %", ">Made with<")
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    assert page.count('href="tuning.csv"') == 2  # from the table, and in the list of tables
    cells = "<td>1</td><td>0.00078125</td><td>0.9</td><td>90.00 %</td><td>finished</td><td>yes</td>"
    assert f"<th scope=row>sync_allreduce</th>{cells}" in page


def test_a_study_of_one_configuration_has_no_column_that_names_it(tuned):
    folder = tuned([("t0", 0.05, 0.9, "finished", "true")], "key lr top1 status chosen")
    assert tuning(read_findings(folder)).rows == [["0.05", "0.9", "90.00 %", "finished", "yes"]]


def test_momentum_and_an_edge_are_shown_and_cautioned_of(tuned):
    columns = "key scheme workers seed lr momentum top1 test_top1 status chance chosen at_edge"
    edge = "lowest effective_rate"
    rows = [
        ("t0", "sync_allreduce", 1, 100, 0.05, 0.9, 0.8, 0.8, "finished", 0.1, "false", ""),
        ("t1", "sync_allreduce", 1, 100, 0.01, 0.2, 0.9, 0.9, "finished", 0.1, "true", edge),
    ]
    folder = tuned(rows, columns)
    table = tuning(read_findings(folder))
    assert list(table.columns[2:4]) == ["training.lr", "training.momentum"]
    assert table.rows[1][2:] == [
        "0.01",
        "0.2",
        "90.00 %",
        "finished",
        f"yes, at the edge: {edge}",
    ]
    edges = ": scheme sync_allreduce, workers 1, lowest effective_rate."
    assert edges in write_page(folder).read_text()


def test_the_search_says_what_it_was_done_with(tuned):
    folder = tuned(TRIED)
    assert "32 images" not in dict(how_it_was_run(read_findings(folder)))["Search"]
    about = json.loads((folder / "study.json").read_text())
    about["tuning"] = [{"at": {"batch_size": 32}}]
    (folder / "study.json").write_text(json.dumps(about))
    search = dict(how_it_was_run(read_findings(folder)))["Search"]
    assert "32 images per worker and step" in search


def test_without_tuning_there_is_no_table(tuned, reported):
    assert ">Tuning<" not in write_page(tuned([])).read_text()
    assert ">Tuning<" not in (reported / "index.html").read_text()
