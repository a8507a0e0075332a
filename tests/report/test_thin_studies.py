"""Studies with little in them get an honest page, or an error that says what to run first."""

import pytest

from paceline.errors import SettingError
from paceline.report.findings import read_findings
from paceline.report.page import charts
from tests.made_decisions import arm, write_decided
from tests.made_reports import fail, make_run, write_page, write_points, write_reports


def test_before_collect(tmp_path):
    with pytest.raises(SettingError, match=r"study: .*paceline sweep made"):
        write_page(tmp_path / "made")


def test_no_point_finished(reports):
    page = reports([fail(make_run(seed=0)), fail(make_run(seed=1), "diverged", "NaN")])
    assert "No run has finished yet" in page
    assert "0 of 2 runs finished" in page
    assert "worker 1 ended with exit code 1" in page


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
