"""A study tunes the rate of each configuration before it runs its own points."""

import json
import shutil

import pytest

from paceline.command.sweep_command import print_plan
from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.study.collect import collect
from paceline.study.study_points import Study, study_points
from paceline.study.surface_search import SurfaceSearch
from paceline.study.sweep import checked_study, sweep
from paceline.study.trials import Searched
from tests.made_records import SEARCH, make_record, rows_of

MORE = {"tuning": SEARCH, "measurement": {"mlflow": {"tracking_uri": None}}}
SCHEMES = ("sync_allreduce", "async_parameter_server")
BEST = {}  # the first trial of the first scheme is its best, and the second one of the second
for place, scheme in enumerate(SCHEMES):
    BEST[scheme] = SurfaceSearch(**SEARCH).first(Searched(scheme, lambda _: None))[place]
RATES = {scheme: trial.lr for scheme, trial in BEST.items()}


@pytest.fixture(autouse=True)
def tuned(root, studied):
    """The study `made`: 2 schemes, each with a rate by rule and a tuned one."""
    studied("made", MORE, **{"scheme": ",".join(RATES), "training.rate": "by_rule,tuned"})


def trials(root, overrides=()):
    return Study("made", root, overrides).trials


def records(points):
    for point in points:
        if point.result is None:
            make_record(point.folder, point.config, **result(point))


def result(point):
    is_best = RATES[point.config.names["scheme"]] == point.config.lr
    return {"top1": 0.8 if is_best else 0.7, "source_digest": "0"}


class Launch:
    """Stands for a launcher: makes records, if it `makes` them, and notes what was asked for."""

    def __init__(self, makes=True):
        self.asked, self._makes = [], makes

    def __call__(self, points):
        self.asked.append([point.key for point in points])
        if self._makes:
            records(points)
        return [None for _ in points]


def keys(points):
    return [point.key for point in points]


def test_a_tuned_point_has_no_key_until_its_configuration_is_tuned(root):
    before = study_points("made", root)
    assert [point.has_rate for point in before] == [True, False] * 2
    assert [point.key == "untuned" for point in before] == [False, True] * 2
    records(trials(root)[:3])  # of the second scheme one is missing
    has_rate = [point.has_rate for point in study_points("made", root)]
    assert has_rate == [True, False] * 2  # each scheme learns from the trials of both
    records(trials(root))
    assert all(point.has_rate for point in study_points("made", root))


@pytest.mark.slow
def test_every_grid_is_tuned_before_any_is_run(root, studied):
    grids = {"grids": [{"workers": 1}, {"workers": 2}]}
    studied("made", MORE | grids, **{"training.rate": "tuned"})
    launch = Launch()
    assert sweep(checked_study("made", root), launch)
    study = Study("made", root)
    assert launch.asked == [keys(study.trials), *map(keys, study.grids)]


def test_without_all_of_the_tuning_the_study_waits(root, capsys):
    launch = Launch(makes=False)
    records(trials(root)[:1])
    assert not sweep(checked_study("made", root), launch)
    assert launch.asked == [keys(trials(root)[1:])]
    assert "1 finished, 3 to do" in capsys.readouterr().out


def test_overrides_reach_the_tuning_but_for_what_it_sets_itself(root):
    asked = ["seed=7", "training.lr=0.3", "workers=1,2", "scheme=sync_allreduce"]
    tried = trials(root, asked)
    assert len(tried) == 4
    assert {point.config.seed for point in tried} == {100}
    records(tried)
    rates = {p.config.lr for p in study_points("made", root, asked) if p.config.is_tuned}
    assert rates == {RATES["sync_allreduce"]}


def test_an_estimate_covers_tuning_and_study(root, capsys):
    done = trials(root)[0]  # 2 epochs, of 64 images, in an hour; 7 points are left
    more = {"samples": 128, "wall_seconds": 3600}
    make_record(done.folder, done.config, **more)
    other = PointConfig({**trials(root)[2].config.values, "study": "other"})
    make_record(root / "runs/other" / other.key, other, **more)
    print_plan(checked_study("made", root))
    assert capsys.readouterr().out.splitlines()[-1] == "about 7.0 hours"


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        (["tuning=null"], "training.rate"),
        (["seed=0,100"], "tuning.seed"),
        (["tuning.trials=0"], "tuning.trials"),
        (["workers=1,0", "training.rate=tuned"], "workers"),
        (["training.lr=0.1,0.2", "training.rate=tuned"], "training.lr"),
    ],
)
def test_a_tuning_that_cannot_be_is_found_before_anything_runs(root, overrides, setting):
    with pytest.raises(SettingError) as caught:
        checked_study("made", root, overrides)
    assert caught.value.setting == setting


def test_tuning_is_collected_apart(root):
    records(trials(root))
    records(study_points("made", root))
    folder = collect(Study("made", root))
    names = ["key", "scheme", "top1", "chosen", "status"]
    found = [tuple(row[name] for name in names) for row in rows_of(folder / "tuning.csv")]
    assert found == [
        (point.key, point.axes["scheme"], top1, chosen, "finished")
        for point, (top1, chosen) in zip(
            trials(root),
            [("0.8", "true"), ("0.7", "false"), ("0.7", "false"), ("0.8", "true")],
            strict=True,
        )
    ]
    runs = rows_of(folder / "runs.csv")
    assert [run["key"] for run in runs] == [point.key for point in study_points("made", root)]
    assert [run["training.rate"] for run in runs] == ["by_rule", "tuned"] * 2
    about = json.loads((folder / "study.json").read_text())
    assert (about["num_points"], about["missing"]) == (4, [])


def test_collecting_before_tuning_has_ended_names_what_is_missing(root):
    records(trials(root)[:3])
    records(point for point in study_points("made", root) if point.has_rate)
    folder = collect(Study("made", root))
    chosen = [row["chosen"] for row in rows_of(folder / "tuning.csv")]
    assert chosen == ["false"] * 3
    assert len(rows_of(folder / "runs.csv")) == 2
    assert json.loads((folder / "study.json").read_text())["missing"] == ["untuned"] * 2


def test_points_that_differ_in_a_setting_of_at_share_a_search(root, studied):
    axes = {"workers": "1,2", "cluster.link.bandwidth": "null,1e6", "training.rate": "tuned"}
    more = MORE | {"tuning": SEARCH | {"at": {"cluster.link.bandwidth": None}}}
    studied("made", more, cluster="virtual", **axes)
    tried = trials(root)
    assert [point.axes["workers"] for point in tried] == [1, 1, 2, 2]
    assert {point.config.values["cluster"]["link"]["bandwidth"] for point in tried} == {None}
    records(tried)
    points = study_points("made", root)
    assert [point.config.lr for point in points] == [RATES["sync_allreduce"]] * 4
    assert [point.config.values["cluster"]["link"]["bandwidth"] for point in points] == [
        None,
        1e6,
    ] * 2
    found = Study("made", root).configurations
    assert ["cluster.link.bandwidth" in each.axes for each in found] == [False, False]


def test_a_trial_is_the_point_with_its_rate_momentum_and_seed(root):
    scheme = SCHEMES[1]
    of_scheme = Study("made", root).configurations[1]
    trial, point = next(iter(of_scheme.points.items()))
    assert point.config.values["trial"] == {  # by which MLflow knows it
        "lr": trial.lr,
        "momentum": trial.momentum,
        "seed": 100,
    }
    rate = ["training.rate=by_rule", f"training.lr={trial.lr}"]
    asked = [*rate, f"training.momentum={trial.momentum}", "seed=100", f"scheme={scheme}"]
    (same,) = study_points("made", root, asked)
    assert same.key == point.key


def test_grids_that_share_a_configuration_tune_it_once(root, studied):
    grids = [
        {"training.rate": "by_rule", "seed": "0"},
        {"training.rate": "tuned", "seed": "0,1"},
    ]
    studied("made", {"tuning": SEARCH, "grids": grids}, scheme=",".join(SCHEMES))
    assert len(Study("made", root).trials) == 4


def test_a_search_is_repeated_with_other_seeds(root, studied):
    """The seed of the search is an axis: each value has trials of its own, and no point's seed."""
    grids = [{"tuning.seed": n, "scheme": ",".join(SCHEMES), "seed": n - 90} for n in (100, 200)]
    more = MORE | {"grids": grids}
    studied("made", more, **{"training.rate": "tuned"})
    study = Study("made", root)
    seeds = [{trial.seed for trial in each.first} for each in study.configurations]
    assert seeds == [{100}] * 2 + [{200}] * 2
    assert len({each.key for each in study.first_trials}) == 8
    studied("made", {**more, "grids": [*grids, {"tuning.seed": 10}]}, **{"training.rate": "tuned"})
    with pytest.raises(SettingError, match=r"^tuning\.seed: 10 is also a seed of the study's own"):
        _ = Study("made", root).tunings


@pytest.fixture
def ended(root, monkeypatch):
    """The search of `made` has ended, and is collected; none can be derived from records now."""
    records(trials(root))
    points = study_points("made", root)
    collect(Study("made", root))
    monkeypatch.setattr(SurfaceSearch, "_surfaces", lambda *_: None)
    return points


def tuned_rates(root, *overrides):
    """The rates of the tuned points of `made`; None for those that have none yet."""
    points = study_points("made", root, overrides)
    return [
        point.config.lr if point.has_rate else None for point in points if point.config.is_tuned
    ]


def test_a_search_that_has_ended_is_read_back(root, ended, studied):
    assert keys(study_points("made", root)) == keys(ended)
    studied("made", MORE, **{"scheme": f"local_sgd,{SCHEMES[1]}", "training.rate": "tuned"})
    assert tuned_rates(root) == [None, RATES[SCHEMES[1]]]


def test_a_search_that_tried_a_place_twice_is_read_back(root, studied, monkeypatch):
    """tuning.csv has a row for each record, and so one for both."""
    more = MORE | {"tuning": SEARCH | {"rounds": 2}}
    studied("made", more, **{"scheme": ",".join(SCHEMES), "training.rate": "tuned"})

    def again(search, _surfaces, _member, scheme, _of):
        return search.first(Searched(scheme, lambda _: None))

    monkeypatch.setattr(SurfaceSearch, "_next", again)
    records(trials(root))
    collect(Study("made", root))
    monkeypatch.setattr(SurfaceSearch, "_surfaces", lambda *_: None)
    assert tuned_rates(root) == list(RATES.values())


@pytest.mark.parametrize("change", ["tuning.rounds=3", "tuning.effective_rate=[0.01,1]"])
def test_a_search_with_other_settings_is_another(root, ended, change):
    assert tuned_rates(root) == list(RATES.values())
    assert tuned_rates(root, change) == [None, None]


def test_trials_with_other_results_are_another_search(root, ended):
    made = trials(root)[0]
    shutil.rmtree(made.folder)
    make_record(made.folder, made.config, **result(made) | {"top1": 0.1})
    assert tuned_rates(root) == [None, RATES[SCHEMES[1]]]


@pytest.mark.parametrize(
    ("name", "whole", "bad"),
    [
        ("study.json", "{", ""),
        ("study.json", "{", "[{"),
        ("tuning.csv", "lr,", "l,"),
        ("tuning.csv", ",100,", ",,"),
    ],
)
def test_a_damaged_table_of_trials_is_named(root, ended, name, whole, bad):
    path = root / "reports/made" / name
    path.write_text(path.read_text().replace(whole, bad, 1))
    with pytest.raises(SettingError, match=r"tuning\.csv is damaged"):
        study_points("made", root)
