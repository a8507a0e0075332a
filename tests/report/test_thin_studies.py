"""Studies with little in them get an honest page, or an error that says what to run first."""

import re

import pytest

from paceline.errors import SettingError
from paceline.report.findings import read_findings, situations
from paceline.report.page import charts
from tests.made_decisions import arm, write_decided
from tests.made_reports import fail, make_run, write_page, write_points, write_reports


def test_before_collect(tmp_path):
    with pytest.raises(SettingError, match=r"study: .*paceline sweep made"):
        write_page(tmp_path / "made")


def test_no_point_finished(reports):
    page = reports([fail(make_run(seed=0)), fail(make_run(seed=1), "diverged", "NaN")])
    assert "No point has finished yet" in page
    assert "0 of 2 points finished" in page
    assert "worker 1 ended with exit code 1" in page


def test_without_one_worker_there_is_no_target_and_no_baseline(reports):
    page = reports([make_run(workers=2, seed=seed) for seed in (0, 1)])
    assert "none: no finished point with one worker" in page
    assert 'id="figure-decision"' not in page


SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("failed", "at chance")]


@pytest.mark.parametrize("nothing", ["of one worker", *SLOW])
def test_a_page_opens_where_every_chart_has_something_to_draw(nothing, tmp_path):
    """Of one worker, which alone reaches the target, there is nothing to compare, and neither of
    points that all failed, or that all diverged.
    """
    both = ("sync_allreduce", "gossip")
    first = [run for scheme in both for run in arm(scheme, 801, 0.9, workers=1)]
    if nothing != "of one worker":
        status = "failed" if nothing == "failed" else "diverged"
        two = [run for scheme in both for run in arm(scheme, 801, 0.9, workers=2)]
        first = [fail(run, status, "it did") for run in two]
    four = [run for scheme in both for run in arm(scheme, None, 0.7)]
    folder = write_decided(tmp_path / "made", [*first, *four])
    findings = read_findings(folder)
    first, *_ = situations(findings)
    opened = re.search(r'<option value="(s\d)">', write_page(folder).read_text())[1]
    assert (opened == first.name) == (first.size == 4)
    for chart in charts(findings):
        if chart.by_situation:
            assert opened in {row["situation"] for row in chart.rows}


def test_a_study_without_evaluations_compares_throughput(tmp_path):
    scores = dict.fromkeys(("top1", "test_top1", "validation_loss"))
    kinds = [("sync_allreduce", 1), ("sync_allreduce", 2), ("async_parameter_server", 2)]
    runs = [make_run(*kind, seed=seed, **scores) for kind in kinds for seed in (0, 1, 2)]
    folder = write_reports(tmp_path / "made", runs)
    write_points(folder, {"curves": []})
    drawn = {chart.name: chart for chart in charts(read_findings(folder))}
    assert len(drawn["configurations"].rows) == len(kinds)
    assert len(drawn["scale"].spec["concat"]) == 1  # without the panel of accuracies
    assert "times the first" in write_page(folder).read_text()
