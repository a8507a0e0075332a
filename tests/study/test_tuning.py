"""A study tunes the rate of each configuration before it runs its own points."""

import csv
import json
import shutil

import pytest

from paceline.command.sweep_command import print_plan
from paceline.errors import SettingError
from paceline.record.point_config import PointConfig
from paceline.study.collect import collect
from paceline.study.study_points import Study, study_points
from paceline.study.sweep import checked_study, sweep
from tests.made_records import SEARCH, make_record, rows_of

MORE = {
    "tuning": SEARCH | {"momentum": [0.0, 0.9]},
    "measurement": {"mlflow": {"tracking_uri": None}},
}
SCHEMES = ("sync_allreduce", "async_parameter_server")
MOMENTA = dict(zip(SCHEMES, (0.9, 0.0), strict=True))  # the best of each scheme
RATES = dict(zip(SCHEMES, (0.05, 0.5), strict=True))
AXES = {"scheme": ",".join(RATES), "training.rate": "by_rule,tuned"}
TRIALS = 2 * (2 * 3 + 1)  # of both schemes: two grids of three rates, and a final


@pytest.fixture(autouse=True)
def tuned(root, studied):
    """The study `made`: 2 schemes, each with a rate by rule and a tuned one."""
    studied("made", MORE, **AXES)


def trials(root, overrides=()):
    return Study("made", root, overrides).trials


def records(points):
    for point in points:
        if point.result is None:
            make_record(point.folder, point.config, **result(point))


def tune(root, overrides=()):
    """Make the records of all trials, round by round, and return their points."""
    while new := [point for point in trials(root, overrides) if point.result is None]:
        records(new)
    return trials(root, overrides)


def result(point):
    """Accuracy that is highest in the middle of each grid, and with the scheme's best momentum."""
    training = point.config.values["training"]
    momentum, scheme = training["momentum"], point.config.names["scheme"]
    is_middle = training["lr"] == pytest.approx(0.5 * (1 - momentum), rel=1e-3)
    top1 = 0.5 + 0.2 * is_middle + 0.1 * (momentum == MOMENTA.get(scheme))
    return {"top1": top1, "source_digest": "0"}


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


def test_a_tuned_point_has_a_key_with_the_best_rate_when_its_configuration_is_tuned(root):
    before = study_points("made", root)
    assert [point.has_rate for point in before] == [True, False] * 2
    assert [point.key == "untuned" for point in before] == [False, True] * 2
    records(trials(root)[1:])  # of the first scheme one is missing
    records(trials(root)[-1:])
    assert [point.has_rate for point in study_points("made", root)] == [True, False, True, True]
    tune(root)
    points = study_points("made", root)
    for point in points:
        tuned = point.axes["training.rate"] == "tuned"
        rate = RATES[point.axes["scheme"]] if tuned else 0.05
        assert point.has_rate
        assert point.config.lr == point.config.values["model"]["optimizer"]["lr"] == rate
        assert point.key == point.config.key == point.folder.name
    assert len({point.key for point in points}) == 4


@pytest.mark.slow
def test_tuning_runs_first_and_the_study_with_its_rates(root, capsys):
    launch = Launch()
    assert sweep(checked_study("made", root, ["sweep.jobs=1"]), launch)
    grids, finals, points = launch.asked
    assert (len(grids), len(finals)) == (12, 2)
    assert sorted(grids + finals) == sorted(keys(trials(root)))
    assert points == keys(study_points("made", root))
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "made, tuning",
        "made, tuning, round 2",
        "made",
    ]
    assert sweep(checked_study("made", root), launch)
    assert len(launch.asked) == 3


def test_the_best_trial_is_that_of_the_results_that_jobs_return(root, capsys):
    """Not what is on disk when they have ended: a launcher may run them elsewhere."""
    rates = []

    def run(points):
        rates.extend(point.config.lr for point in points if point.config.is_tuned)
        return [{**result(point), "status": "finished"} for point in points]

    assert sweep(checked_study("made", root), run)
    assert rates == list(RATES.values())


def test_without_all_of_the_tuning_the_study_waits(root, capsys):
    launch = Launch(makes=False)
    records(trials(root)[:1])
    assert not sweep(checked_study("made", root), launch)
    assert launch.asked == [keys(trials(root)[1:])]
    assert "1 finished, 11 to do" in capsys.readouterr().out


def test_overrides_reach_the_tuning_but_for_what_it_sets_itself(root):
    asked = ["seed=7", "training.lr=0.3", "workers=1,2", "scheme=sync_allreduce"]
    tried = tune(root, asked)
    assert len(tried) == TRIALS
    assert {point.config.seed for point in tried} == {100, 101}
    rates = {p.config.lr for p in study_points("made", root, asked) if p.config.is_tuned}
    assert rates == {RATES["sync_allreduce"]}


def test_a_dry_run_lists_the_tuning_and_announces_the_rest(root, capsys):
    records(trials(root)[:1])
    print_plan(checked_study("made", root))
    out = capsys.readouterr().out
    assert "12 points: 1 finished, 11 to do; 11 to run" in out
    assert "4 points: 4 to do; 4 to run" in out
    assert out.count("untuned") == 2


def test_an_estimate_covers_tuning_and_study(root, capsys):
    done = trials(root)[0]  # 2 epochs, of 64 images, in an hour; 15 points are known and left
    more = {"samples": 128, "wall_seconds": 3600}
    make_record(done.folder, done.config, **more)
    other = PointConfig({**trials(root)[6].config.values, "study": "other"})
    make_record(root / "runs/other" / other.key, other, **more)
    print_plan(checked_study("made", root))
    assert capsys.readouterr().out.splitlines()[-1] == "about 15.0 hours"


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        (["tuning=null"], "training.rate"),
        (["seed=0,100"], "tuning.seed"),
        (["tuning.rates=0"], "tuning.rates"),
        (["workers=1,0", "training.rate=tuned"], "workers"),
        (["training.lr=0.1,0.2", "training.rate=tuned"], "training.lr"),
    ],
)
def test_a_tuning_that_cannot_be_is_found_before_anything_runs(root, overrides, setting):
    with pytest.raises(SettingError) as caught:
        checked_study("made", root, overrides)
    assert caught.value.setting == setting


def test_tuning_is_collected_apart(root):
    tried = tune(root)
    records(study_points("made", root))
    folder = collect(Study("made", root))
    rows = rows_of(folder / "tuning.csv")
    assert [row["key"] for row in rows] == keys(tried)
    assert {row["chance"] for row in rows} == {"0.1"}  # of ten classes
    chosen = {row["scheme"]: row for row in rows if row["chosen"] == "true"}
    assert {scheme: float(row["lr"]) for scheme, row in chosen.items()} == RATES
    assert [float(row["top1"]) for row in chosen.values()] == pytest.approx([0.8, 0.8])
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
    tried = tune(root)
    assert [point.axes["workers"] for point in tried] == [1] * 4 + [2] * 4
    assert {point.config.values["cluster"]["link"]["bandwidth"] for point in tried} == {None}
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
        {"training.rate": "by_rule", "workers": "2", "seed": "0"},  # has no search
    ]
    studied("made", {"tuning": SEARCH, "grids": grids}, scheme=",".join(SCHEMES))
    tried = Study("made", root).trials_of_points
    assert len(tried) == 2 * 3
    assert {point.axes["workers"] for point in tried} == {1}


def test_a_search_is_repeated_with_other_seeds(root, studied):
    """The seed of the search is an axis: each value has trials of its own, and no point's seed."""
    grids = [{"tuning.seed": n, "scheme": ",".join(SCHEMES), "seed": n - 90} for n in (100, 200)]
    more = MORE | {"grids": grids}
    studied("made", more, **{"training.rate": "tuned"})
    study = Study("made", root)
    seeds = [{trial.seed for trial in each.points} for each in study.configurations]
    assert seeds == [{100}] * 2 + [{200}] * 2
    assert len({each.key for each in study.trials}) == 4 * 6
    studied("made", {**more, "grids": [*grids, {"tuning.seed": 10}]}, **{"training.rate": "tuned"})
    with pytest.raises(SettingError, match=r"^tuning\.seed: .* seed 10"):
        _ = Study("made", root).tunings


@pytest.fixture
def ended(root):
    """The search of `made` has ended, and is collected."""
    tune(root)
    points = study_points("made", root)
    collect(Study("made", root))
    return points


def test_data_need_not_say_how_many_classes_they_have(root):
    """As a LightningDataModule of a user, whose module knows it."""
    unknown = ["~data.num_classes", "model.network.num_classes=3"]
    tune(root, unknown)
    with (collect(Study("made", root, unknown)) / "tuning.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == TRIALS
    assert {row["chance"] for row in rows} == {""}


def tuned_rates(root, *overrides):
    """The rates of the tuned points of `made`; None for those that have none yet."""
    points = study_points("made", root, overrides)
    return [
        point.config.lr if point.has_rate else None for point in points if point.config.is_tuned
    ]


def test_a_search_that_has_ended_is_read_back_until_its_table_is_removed(root, ended, studied):
    """But not where a scheme is added, or a trial has another result."""
    changes = ("tuning.rates=9", "tuning.effective_rate=0.1")
    assert [keys(study_points("made", root, [change])) for change in changes] == [keys(ended)] * 2
    studied("made", MORE, **{"scheme": f"local_sgd,{SCHEMES[1]}", "training.rate": "tuned"})
    assert tuned_rates(root) == [None, RATES[SCHEMES[1]]]
    studied("made", MORE, **AXES)
    made = trials(root)[0]
    shutil.rmtree(made.folder)
    make_record(made.folder, made.config, **result(made) | {"top1": 0.9})
    assert tuned_rates(root) == [None, RATES[SCHEMES[1]]]
    (root / "reports/made/tuning.csv").unlink()
    assert [tuned_rates(root, change) for change in changes] == [[None, None]] * 2


@pytest.mark.parametrize(("whole", "bad"), [("lr,", "l,"), (",100,", ",,")])
def test_a_damaged_table_of_trials_is_named(root, ended, whole, bad):
    path = root / "reports/made/tuning.csv"
    path.write_text(path.read_text().replace(whole, bad, 1))
    with pytest.raises(SettingError, match=r"tuning\.csv is damaged"):
        study_points("made", root)
