"""No page of a committed study recommends what its own tables contradict."""

from pathlib import Path

import pytest

from paceline.analysis.configuration import groups, situation_columns
from paceline.analysis.decision import decision
from paceline.analysis.tables import read_tables
from paceline.report.answer import choice

REPORTS = Path(__file__).parent.parent.parent / "reports"
STUDIES = sorted(path.parent.name for path in REPORTS.glob("*/runs.csv"))


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_what_is_recommended_is_not_tied_and_less_accurate(study):
    tables = read_tables(REPORTS / study)
    table = decision(tables)
    for situation, rows in groups(table, situation_columns(tables.axes)):
        chosen = choice(rows)
        if chosen.is_scheme:
            assert chosen.row["tier"] in ("best", "tied"), situation
            assert chosen.row["less_accurate_than"] == "", situation
            assert not chosen.row["speedup_low"] <= 1, situation  # NaN: the only one
            reference = rows[rows["scheme"] == chosen.row["reference"]]
            tied = len(reference) == 1 and reference["tier"].iloc[0] in ("best", "tied")
            assert not (tied and chosen.row["accuracy"] == "worse"), situation
