"""A number or a conclusion that is declared is everywhere; no other list names it."""

import pandas as pd
import pytest

from paceline.analysis.analyse import CONCLUSIONS, Conclusion
from paceline.record import result
from paceline.record.result import NUMBERS, Number, measured
from tests.made_reports import make_run, write_page, write_reports

STEPS = Number(
    "steps_of_all",
    "images",
    lambda observed: observed.steps,
    "steps of all workers",
)


class Made:
    steps = 7


def test_a_new_number_reaches_the_record_the_summary_and_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(result, "NUMBERS", [STEPS])
    assert measured(Made()) == {"steps_of_all": 7}  # type: ignore[arg-type]
    monkeypatch.setattr(result, "NUMBERS", [*NUMBERS, STEPS])
    folder = write_reports(
        tmp_path / "made", [make_run(seed=s, steps_of_all=1000 + s) for s in (0, 2)]
    )
    page = write_page(folder).read_text()
    (row,) = pd.read_csv(folder / "tables/configurations.csv").to_dict("records")
    assert (row["steps_of_all_mean"], row["steps_of_all_n"]) == (pytest.approx(1001, rel=1e-5), 2)
    assert page.count('<th scope="col">steps of all workers</th>') == 1
    assert ">1,001<br>" in page


def test_each_column_has_a_place_of_its_own():
    shown = [number for number in NUMBERS if number.heading]
    places = [(each.section, each.place) for each in shown if each.place != Number.place]
    assert len(set(places)) == len(places)


def test_reports_of_code_before_a_number_are_still_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(result, "NUMBERS", [*NUMBERS, STEPS])
    folder = write_reports(tmp_path / "made", [make_run()])
    page = write_page(folder).read_text()
    assert "steps_of_all_mean" not in pd.read_csv(folder / "tables/configurations.csv")
    assert "steps of all workers" not in page


def test_a_new_conclusion_is_written_and_linked(tmp_path, monkeypatch):
    def slowest(tables):
        return tables.runs.groupby(["kind", "scheme"], as_index=False)["seconds"].max()

    new = Conclusion("slowest_runs", slowest)
    for module in ("findings", "page"):
        monkeypatch.setattr(f"paceline.report.{module}.CONCLUSIONS", [*CONCLUSIONS, new])
    folder = write_reports(tmp_path / "made", [make_run(seconds=12.0)])
    page = write_page(folder).read_text()
    assert len(pd.read_csv(folder / "tables/slowest_runs.csv")) == 1
    assert page.count('href="tables/slowest_runs.csv"') == 1
