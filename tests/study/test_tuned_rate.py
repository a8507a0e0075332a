"""A tuned rate is that of the best trial of its configuration, by their records."""

import math

import pytest
from omegaconf import OmegaConf

from paceline.errors import SettingError
from paceline.study.trials import QuasiRandomSearch, Searched, Trial, best_trial
from paceline.study.tuning import read_tuning, set_rate, trial_config
from tests.made_records import NAMES, make_record
from tests.record.test_point_config import CONFIG

SEARCH = {
    "effective_rate": [0.001, 1],
    "one_minus_momentum": [0.03, 1],
    "searches": 1,
    "trials": 2,
    "extensions": 0,
    "extension_trials": 1,
    "seed": 100,
}
TRIALS = QuasiRandomSearch(**SEARCH).first(Searched("", lambda _: None))


def result(top1, status="finished"):
    return {"top1": top1, "status": status}


def config(rate, tuning, workers=2):
    training = {**CONFIG["training"], "rate": rate}
    changes = {"training": training, "tuning": tuning, "workers": workers}
    changes |= {"global_batch_size": None, "trial": None, "batch_size": 32, "names": NAMES}
    return OmegaConf.create(CONFIG | changes | {"optimizer": {"lr": "${training.lr}"}})


def record(root, cfg, trial, top1):
    made = trial_config(cfg, trial, {})
    make_record(root / made.folder, made, **result(top1))


@pytest.mark.parametrize(
    ("results", "best"),
    [
        ({0.1: result(0.5), 0.01: result(0.7), 0.001: result(0.6)}, 0.01),
        ({0.1: result(0.7), 0.01: result(0.7), 0.001: result(0.6)}, 0.01),
        ({0.1: result(0.9, "diverged"), 0.01: result(0.0), 0.001: result(None, "failed")}, 0.01),
        ({0.1: result(None, "diverged"), 0.01: result(None, "failed")}, 0.01),
        ({0.1: result(0.5), 0.01: None}, None),
    ],
)
def test_the_best_rate_by_hand(results, best):
    trials = {Trial(lr=lr, momentum=0.9, seed=0): found for lr, found in results.items()}
    found = best_trial(trials, trials.get)
    assert (found and found.lr) == best


def test_of_equals_the_smaller_effective_rate_is_taken():
    trials = [Trial(lr=0.1, momentum=0.0, seed=0), Trial(lr=0.05, momentum=0.9, seed=0)]
    assert best_trial(trials, lambda _: result(0.5)) == trials[0]


def test_a_tuned_rate_follows_the_configuration(tmp_path):
    for workers, scores in ((2, (0.5, 0.6)), (4, (0.6, 0.5))):
        cfg = config("by_rule", SEARCH, workers)
        for trial, top1 in zip(TRIALS, scores, strict=True):
            record(tmp_path, cfg, trial, top1)
    for workers, trial in ((2, TRIALS[1]), (4, TRIALS[0])):
        cfg = config("tuned", SEARCH, workers)
        assert set_rate(cfg, tmp_path)
        assert (cfg.training.lr, cfg.training.momentum) == (trial.lr, trial.momentum)
        assert (cfg.optimizer.lr, cfg.seed) == (trial.lr, CONFIG["seed"])
        assert cfg.training.rate == "tuned"


def test_there_is_no_tuned_rate_before_the_last_record(tmp_path):
    record(tmp_path, config("by_rule", SEARCH), TRIALS[0], 0.5)
    cfg = config("tuned", SEARCH)
    assert not set_rate(cfg, tmp_path)
    assert cfg.training.lr is None
    record(tmp_path, config("by_rule", SEARCH), TRIALS[1], 0.5)
    assert set_rate(cfg, tmp_path)


@pytest.mark.parametrize("tuning", [None, SEARCH])
def test_a_rate_by_rule_is_as_set(tuning, tmp_path):
    cfg = config("by_rule", tuning)
    assert set_rate(cfg, tmp_path)
    assert cfg == config("by_rule", tuning)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("best", "'best'; there are: by_rule, tuned"),
        ("tuned", "tuned, but the study has no tuning"),
    ],
)
def test_a_rate_that_cannot_be_is_named(rate, message, tmp_path):
    with pytest.raises(SettingError, match=f"training.rate: {message}"):
        set_rate(config(rate, None), tmp_path)


@pytest.mark.parametrize(
    ("tuning", "setting"),
    [
        ([0.1], "tuning"),
        ({}, "tuning.effective_rate"),
        (SEARCH | {"rungs": 3}, "tuning.rungs"),
        (SEARCH | {"effective_rate": [1, 0.001]}, "tuning.effective_rate"),
        (SEARCH | {"effective_rate": [0, 1]}, "tuning.effective_rate"),
        (SEARCH | {"effective_rate": [0.1, math.inf]}, "tuning.effective_rate"),
        (SEARCH | {"effective_rate": 0.1}, "tuning.effective_rate"),
        (SEARCH | {"one_minus_momentum": [0.1, 1.5]}, "tuning.one_minus_momentum"),
        (SEARCH | {"one_minus_momentum": [0.1]}, "tuning.one_minus_momentum"),
        (SEARCH | {"searches": 0}, "tuning.searches"),
        (SEARCH | {"trials": 2.5}, "tuning.trials"),
        (SEARCH | {"extensions": -1}, "tuning.extensions"),
        (SEARCH | {"extension_trials": 0}, "tuning.extension_trials"),
        (SEARCH | {"seed": "a"}, "tuning.seed"),
        (SEARCH | {"seed": -1}, "tuning.seed"),
        (SEARCH | {"seed": True}, "tuning.seed"),
    ],
)
def test_a_bad_tuning_is_named(tuning, setting):
    with pytest.raises(SettingError) as caught:
        read_tuning(tuning)
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("trial", "setting"),
    [
        (3, "trial"),
        ({"lr": 0.1, "seed": 0}, "trial.momentum"),
        ({"lr": 0, "momentum": 0.9, "seed": 0}, "trial.lr"),
        ({"lr": 0.1, "momentum": 1, "seed": 0}, "trial.momentum"),
    ],
)
def test_a_bad_trial_is_named(trial, setting, tmp_path):
    cfg = config("by_rule", None)
    cfg.trial = trial
    with pytest.raises(SettingError) as caught:
        set_rate(cfg, tmp_path)
    assert caught.value.setting == setting
