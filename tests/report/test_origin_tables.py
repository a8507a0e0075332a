"""Where the numbers of a study come from: one value for all points, or each with its points."""

from paceline.report.page_tables import origin_tables
from tests.made_reports import make_run


def made_with(findings, *commits):
    runs = [make_run(seed=seed, commit=commit) for seed, commit in enumerate(commits)]
    (table,) = [each for each in origin_tables(findings(runs)) if each.name == "Made with"]
    return dict(map(tuple, table.rows))["commit"]


def test_one_value_stands_for_all_points_and_several_are_counted(findings):
    assert made_with(findings, "abc", "abc") == "abc"
    assert made_with(findings, "abc", "def", "abc") == "abc (2 points); def (1 points)"
