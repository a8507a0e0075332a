"""Studies with little in them get an honest page, or an error that says what to run first."""

import itertools

import pytest

from paceline.errors import SettingError
from paceline.report.page import report
from tests.made_reports import fail, make_run, write_reports


def test_before_collect(tmp_path):
    with pytest.raises(SettingError, match=r"study: .*paceline sweep made"):
        report(tmp_path / "made")


def test_before_analyse(tmp_path):
    with pytest.raises(SettingError, match=r"study: .*paceline report made"):
        report(write_reports(tmp_path / "made"))


def test_no_point_finished(reports):
    page = reports([fail(make_run(seed=0)), fail(make_run(seed=1), "diverged", "NaN")])
    assert "No point has finished yet" in page
    assert "0 of 2 points finished" in page
    assert "worker 1 ended with exit code 1" in page


def test_one_point(reports):
    page = reports([make_run()])
    assert "no interval), n = 1" in page
    assert "only one finished seed" in page


def test_only_asynchronous(reports):
    points = itertools.product(["async_parameter_server"], (1, 2), (32,), (0, 1))
    page = reports([make_run(*point) for point in points])
    assert 'id="figure-staleness"' in page
    assert "no schemes are compared" in page


def test_only_synchronous_has_no_staleness(reports):
    page = reports([make_run(seed=seed) for seed in (0, 1)])
    assert 'id="figure-staleness"' not in page
    assert 'id="figure-phases"' in page


def test_without_one_worker_there_is_no_target_and_no_baseline(reports):
    page = reports([make_run(workers=2, seed=seed) for seed in (0, 1)])
    assert "There is no target, because no point with one worker has finished." in page
    assert "none: no finished point with one worker" in page
    assert 'id="figure-decision"' not in page


def test_a_further_axis_makes_panels_and_columns(reports):
    axes = ["scheme", "workers", "training.lr", "seed"]
    points = itertools.product((0.1, 0.2), (1, 2), (0, 1))
    runs = [
        make_run(workers=w, seed=s, key=f"{10 * lr:.0f}{w}{s}", **{"training.lr": lr})
        for lr, w, s in points
    ]
    page = reports(runs, axes=axes)
    assert '<th scope="col">training.lr</th>' in page
    assert "0.2 learning rate" in page
