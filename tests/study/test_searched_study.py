"""A study with a search: the same trials for each configuration, and their best is reported."""

import json

import pytest

from paceline.errors import SettingError
from paceline.study.collect import collect
from paceline.study.study_points import Study, study_points
from paceline.study.sweep import checked_study, sweep
from tests.made_records import make_record, rows_of

SEARCH = {
    "effective_rate": [0.001, 1],
    "one_minus_momentum": [0.03, 1],
    "searches": 2,
    "trials": 2,
    "extensions": 1,
    "extension_trials": 1,
    "seed": 118,  # by which small and large rates are both in the outer tenth
}
SCHEMES = ("sync_allreduce", "async_parameter_server")


@pytest.fixture(autouse=True)
def searched(root, studied):
    """The study `made`: 2 schemes, tuned, with 2 seeds."""
    more = {"tuning": SEARCH, "measurement": {"mlflow": {"tracking_uri": None}}}
    studied("made", more, scheme=",".join(SCHEMES), seed="0,1", **{"training.rate": "tuned"})


def configurations(root):
    return Study("made", root).configurations


def score(point, large):
    """Top-1 of a world in which small rates are good; with `large` large ones are."""
    training = point.config.values["training"]
    rate = training["lr"] / (1 - training["momentum"])
    return 0.1 + rate / 1000 if large else 1 - rate / 1000


def make(points, large=SCHEMES[1]):
    for point in points:
        if point.result is None and point.has_rate:
            top1 = score(point, large=point.config.names["scheme"] == large)
            made = {"top1": top1, "test_top1": top1 - 0.001, "source_digest": "0"}
            make_record(point.folder, point.config, **made)


class Launch:
    """Stands for a launcher: makes the records of what it is asked for, up to `limit` points."""

    def __init__(self, limit=100):
        self.limit, self.asked = limit, []

    def __call__(self, points):
        self.asked.append(points)
        make(points[: self.limit])
        self.limit -= len(points)
        return [None for _ in points]


def schemes(points):
    return [point.config.names["scheme"] for point in points]


def test_every_configuration_has_the_same_trials(root):
    first, second = configurations(root)
    assert (first.axes, second.axes) == tuple({"scheme": scheme} for scheme in SCHEMES)
    assert list(first.points) == list(second.points)
    assert len(first.points) == 4
    assert [trial.seed for trial in first.points] == [118, 118, 119, 119]
    for trial, point in first.points.items():
        optimizer = point.config.values["model"]["optimizer"]
        assert (optimizer["lr"], optimizer["momentum"]) == (trial.lr, trial.momentum)
        assert (point.config.seed, point.config.is_tuned) == (trial.seed, False)
        tried = {"lr": trial.lr, "momentum": trial.momentum, "seed": trial.seed}
        assert point.config.values["trial"] == tried  # by which MLflow knows it
    assert len({point.key for point in Study("made", root).trials}) == 8


def test_a_trial_is_the_point_with_its_rate_momentum_and_seed(root):
    trial, point = next(iter(configurations(root)[0].points.items()))
    asked = ["training.rate=by_rule", f"training.lr={trial.lr}", f"seed={trial.seed}"]
    (same,) = study_points(
        "made", root, [*asked, f"training.momentum={trial.momentum}", f"scheme={SCHEMES[0]}"]
    )
    assert same.key == point.key


@pytest.mark.slow
def test_a_search_is_extended_and_goes_on_where_it_stopped(root, capsys):
    """Small rates are good for the first scheme, and large ones for the second."""
    launch = Launch(limit=10)  # stops after the extension of the first scheme
    assert not sweep(checked_study("made", root), launch)
    assert [schemes(points) for points in launch.asked] == [
        [scheme for scheme in SCHEMES for _ in range(4)],
        [scheme for scheme in SCHEMES for _ in range(2)],
    ]
    more = Launch()
    assert sweep(checked_study("made", root), more)
    assert [schemes(points) for points in more.asked] == [
        [SCHEMES[1]] * 2,
        [scheme for scheme in SCHEMES for _ in range(2)],
    ]
    tuning = "made, tuning: 8 points: 8 finished"
    assert capsys.readouterr().out.splitlines() == [
        tuning,
        "made, tuning, extension 1: 4 points: 2 finished, 2 to do",
        tuning,
        "made, tuning, extension 1: 4 points: 4 finished",
        "made: 4 points: 4 finished",
    ]


@pytest.mark.slow
def test_the_best_trial_is_reported_and_collected(root):
    for _ in range(2):
        assert not any(point.has_rate for point in study_points("made", root))
        make(Study("made", root).trials)
    points = study_points("made", root)
    make(points)
    found = rows_of(collect(Study("made", root)) / "tuning.csv")
    assert [row["seed"] for row in found] == 2 * ["118", "118", "119", "119", "118", "119"]
    chosen = [row for row in found if row["chosen"] == "true"]
    assert [row["at_edge"] for row in chosen] == ["", "highest effective_rate"]
    assert {row["at_edge"] for row in found if row["chosen"] == "false"} == {""}
    for row, each, own in zip(chosen, configurations(root), (points[:2], points[2:]), strict=True):
        best = each.tried.best
        assert (row["scheme"], row["chance"]) == (each.axes["scheme"], "0.1")
        assert (float(row["lr"]), float(row["momentum"])) == (best.lr, best.momentum)
        assert float(row["test_top1"]) == float(row["top1"]) - 0.001
        assert [point.config.seed for point in own] == [0, 1]
        for point in own:
            training = point.config.values["training"]
            assert (training["lr"], training["momentum"]) == (best.lr, best.momentum)
    assert best.effective_rate > 1  # of the second scheme, beyond the box
    about = json.loads((root / "reports/made/study.json").read_text())
    assert (about["num_points"], about["missing"], about["other_records"]) == (4, [], [])


def test_grids_that_share_a_configuration_tune_it_once(root, studied):
    grids = [
        {"training.rate": "by_rule", "seed": "0"},
        {"training.rate": "tuned", "seed": "0,1"},
    ]
    studied("made", {"tuning": SEARCH, "grids": grids}, scheme=",".join(SCHEMES))
    assert len(Study("made", root).trials) == 8


def test_a_search_is_repeated_with_other_seeds(root, studied):
    """The seed of the search is an axis: each value has trials of its own, and no point's seed."""
    grids = [{"tuning.seed": n, "scheme": ",".join(SCHEMES), "seed": n - 90} for n in (100, 200)]
    more = {"tuning": SEARCH, "grids": grids, "measurement": {"mlflow": {"tracking_uri": None}}}
    studied("made", more, **{"training.rate": "tuned"})
    study = Study("made", root)
    seeds = [{trial.seed for trial in each.first} for each in study.configurations]
    assert seeds == [{100, 101}] * 2 + [{200, 201}] * 2
    assert len({each.key for each in study.first_trials}) == 16
    studied("made", {**more, "grids": [*grids, {"tuning.seed": 10}]}, **{"training.rate": "tuned"})
    with pytest.raises(SettingError, match=r"^tuning\.seed: 10 is also a seed of the study's own"):
        _ = Study("made", root).tuning
