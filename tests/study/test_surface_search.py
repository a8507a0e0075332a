"""A search in rounds: each scheme has trials of its own, and learns from those of all schemes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from paceline.errors import SettingError
from paceline.study.collect import collect
from paceline.study.study_points import Study
from paceline.study.surface_search import SurfaceSearch
from paceline.study.surfaces import Surfaces
from paceline.study.sweep import checked_study, sweep
from paceline.study.trials import Searched, Trial
from tests.made_records import SEARCH as SEARCH_OF_ONE
from tests.made_records import make_record, rows_of

ASKED = SEARCH_OF_ONE | {"rounds": 2, "trials": 6}
SEARCH = SurfaceSearch(**ASKED)
CLIFF = 0.5  # effective rate from which trials diverge


def error(trial, best):
    """Bowl around an effective rate of `best` and a momentum of 0.9."""
    off = math.log10(trial.effective_rate / best), math.log10((1 - trial.momentum) / 0.1)
    return 0.1 + 0.02 * (off[0] ** 2 + 0.3 * off[1] ** 2)


def world(scheme, best=0.1):
    def result_of(trial):
        diverged = trial.effective_rate > CLIFF
        top1 = None if diverged else 1 - error(trial, best)
        return {"status": "diverged" if diverged else "finished", "top1": top1}

    return Searched(scheme, result_of)


def unknown(scheme):
    return Searched(scheme, lambda _: None)


def test_each_scheme_has_trials_of_its_own_with_one_seed():
    first = [SEARCH.first(unknown(scheme)) for scheme in ("gossip", "local_sgd", "gossip")]
    assert first[0] == first[2]
    assert not set(first[0]) & set(first[1])
    assert [len(own) for own in first] == [6, 6, 6]
    assert {trial.seed for own in first for trial in own} == {100}
    made = first[0][0]  # other trials would have other keys: a sweep would run all again
    assert made == Trial(lr=0.0005251, momentum=0.782, seed=100)


def test_the_second_round_waits_for_the_first_of_all_schemes():
    both = [world("gossip"), unknown("local_sgd")]
    tried = SEARCH.tried(both[0], both)
    assert (tried.trials, tried.best) == (tuple(SEARCH.first(both[0])), None)
    firsts = {trial for each in both for trial in SEARCH.first(each)}
    known = world("gossip").result_of
    halves = [
        Searched(each.scheme, lambda trial: known(trial) if trial in firsts else None)
        for each in both
    ]
    tried = SEARCH.tried(halves[0], halves)
    assert (len(set(tried.trials)), tried.best) == (12, None)


def test_the_second_round_is_near_the_best_and_not_beyond_the_cliff():
    both = [world("gossip", 0.1), world("local_sgd", 0.08)]
    for each, best in zip(both, (0.1, 0.08), strict=True):
        tried = SEARCH.tried(each, both)
        rounds = tried.trials[:6], tried.trials[6:]
        errors = [min(error(t, best) for t in own if t.effective_rate <= CLIFF) for own in rounds]
        assert errors[1] < min(errors[0], 0.102)
        assert tried.best in tried.trials
        assert error(tried.best, best) < 0.102
        assert sum(t.effective_rate > CLIFF for t in rounds[1]) <= 2
        assert tried.edge == ""


def barely(scheme):
    """Scheme that trains at few places, around an effective rate of 0.005 and a momentum of 0.8."""

    def result_of(trial):
        off = math.log10(trial.effective_rate / 0.005), math.log10((1 - trial.momentum) / 0.2)
        top1 = 1 - 0.2 * math.exp(min(0.6 * off[0] ** 2 + 0.3 * off[1] ** 2, 1.4))
        finished = off[0] <= 0.7
        return {"status": "finished", "top1": top1} if finished else {"status": "diverged"}

    return Searched(scheme, result_of)


def test_where_few_trials_train_later_rounds_stay_near_them():
    search, family = replace(SEARCH, rounds=3, seed=2), [barely("gossip"), barely("local_sgd")]
    for each in family:
        tried = search.tried(each, family)
        top1 = [each.result_of(trial).get("top1", 0.0) for trial in tried.trials]
        rates = [math.log10(trial.effective_rate) for trial in tried.trials]
        trained = [rate for rate, own in zip(rates[:6], top1, strict=False) if own > 0.65]
        assert len(trained) < 4
        assert all(min(abs(rate - own) for own in trained) < 0.4 for rate in rates[6:12])
        assert each.result_of(tried.best)["top1"] > 0.795  # of 0.8; 0.779 in the first round


@pytest.mark.parametrize(("trained", "poor"), [(2, math.log(0.201 * 1.6)), (3, math.nan)])
def test_a_poor_trial_tells_that_its_place_is_poor_only_if_few_trained(trained, poor):
    top1 = np.array([0.8, 0.79, 0.78][:trained] + [0.5, 0.3, math.nan][: 5 - trained])
    surfaces = Surfaces.of_top1(np.zeros((5, 3)), np.zeros(5, int), top1)
    assert surfaces.trained.tolist() == [True] * trained + [False] * (5 - trained)
    assert -surfaces.gains[trained : trained + 2] == pytest.approx([poor] * 2, nan_ok=True)


def test_a_scheme_all_of_whose_trials_diverge_goes_away_from_them():
    dead = Searched("gossip", lambda _: {"status": "diverged", "top1": None})
    family = [dead, world("local_sgd")]
    tried = SEARCH.tried(dead, family)
    assert len(set(tried.trials)) == 12
    assert tried.best == min(tried.trials, key=lambda trial: trial.effective_rate)


def test_a_best_trial_at_the_edge_is_named():
    far = [world("gossip", 1e-5)]
    tried = SEARCH.tried(far[0], far)
    assert tried.edge == "lowest effective_rate"
    assert tried.best.effective_rate < 0.001  # later rounds look beyond the box, too


@pytest.mark.parametrize(
    ("values", "tried"),
    [([1, 16], set(range(1, 17))), (["ring", "complete"], {"ring", "complete"})],
)
def test_a_setting_of_a_scheme_is_an_axis_of_its_search_alone(values, tried):
    search = replace(SEARCH, own={"gossip": {"scheme.made": values}})
    good = values[0]

    def result_of(trial):
        found = dict(trial.own)["scheme.made"]
        worse = 0 if found == good else 0.03
        return {"status": "finished", "top1": 1 - error(trial, 0.1) - worse}

    family = [Searched("gossip", result_of), world("local_sgd")]
    own, other = (search.tried(each, family) for each in family)
    found = [dict(trial.own)["scheme.made"] for trial in own.trials]
    assert len(set(found)) > 1
    assert set(found) <= tried
    assert dict(own.best.own)["scheme.made"] == good
    assert not any(trial.own for trial in other.trials)
    places = [search.own_of("gossip", trial)["own_place"] for trial in own.trials]
    assert all(0 <= place <= 1 for place in places)
    assert search.names("gossip") == ["training.lr", "training.momentum", "scheme.made"]


def test_values_of_a_setting_that_cannot_be_an_axis_are_named():
    for values in (["ring"], [3, 1], [0, 1]):
        with pytest.raises(SettingError, match=r"^tuning\.own\.gossip\.scheme\.graph"):
            SurfaceSearch(**ASKED, own={"gossip": {"scheme.graph": values}})


def test_a_setting_that_is_searched_is_not_missed_before_the_search(root, studied):
    small = ASKED | {"trials": 2, "own": {"local_sgd": {"scheme.period": [2, 16]}}}
    studied("made", {"tuning": small}, scheme="local_sgd", **{"training.rate": "tuned"})
    checked = checked_study("made", root, ["sweep.jobs=2"])  # whose processes are counted
    assert checked.points[0].config.values["scheme"]["period"] is None


def test_a_search_may_follow_the_number_of_workers(root, studied):
    asked = ASKED | {"trials": "${per:${workers},{1: 4, 2: 2}}"}
    studied("made", {"tuning": asked}, workers="1,2,8", **{"training.rate": "tuned"})
    made = {each.axes["workers"]: len(each.points) for each in Study("made", root).configurations}
    assert made == {1: 4, 2: 2, 8: 2}


def test_a_study_searches_in_rounds_and_goes_on_where_it_stopped(root, studied, capsys):
    schemes = "sync_allreduce,local_sgd"
    small = ASKED | {"trials": 3, "own": {"local_sgd": {"scheme.period": [2, 16]}}}
    more = {"tuning": small, "measurement": {"mlflow": {"tracking_uri": None}}}
    studied("made", more, scheme=schemes, seed="0,1", **{"training.rate": "tuned"})

    left = [8]  # points until the sweep is stopped

    def launch(points):
        made, left[0] = points[: left[0]], max(left[0] - len(points), 0)
        for point in made:
            training = point.config.values["training"]
            rate = math.log10(training["lr"] / (1 - training["momentum"]))
            top1 = 0.9 - 0.01 * (rate + 1) ** 2
            make_record(point.folder, point.config, top1=top1, test_top1=top1, source_digest="0")
        return [None for _ in points]

    assert not sweep(Study("made", root), launch)
    left[0] = 100
    assert sweep(Study("made", root), launch)
    lines = [line for line in capsys.readouterr().out.splitlines() if ": " in line]
    assert "made, tuning: 6 points: 6 finished" in lines
    assert "made, tuning, round 2: 6 points: 6 finished" in lines
    study = Study("made", root)
    assert {(len(each.points), each.axes["scheme"]) for each in study.configurations} == {
        (6, "sync_allreduce"),
        (6, "local_sgd"),
    }
    periods = {
        point.config.names["scheme"]: point.config.values["scheme"].get("period")
        for point in study.points
    }
    assert 2 <= periods["local_sgd"] <= 16
    rows = rows_of(collect(study) / "tuning.csv")
    assert len(rows) == 12
    owns = {row["own"] for row in rows if row["scheme"] == "local_sgd"}
    assert owns <= {f"scheme.period={n}" for n in range(2, 17)}
    assert len(owns) > 1
    assert {row["own"] for row in rows if row["scheme"] == "sync_allreduce"} == {""}
    (chosen,) = [r for r in rows if r["chosen"] == "true" and r["scheme"] == "local_sgd"]
    assert chosen["own"] == f"scheme.period={periods['local_sgd']}"
    assert np.isfinite(float(chosen["own_place"]))
    assert {row["at_edge"] for row in rows} == {""}
