"""A point by itself may have a trial's rate, and none that only a whole study finds."""

import pytest
from omegaconf import OmegaConf

from paceline.errors import SettingError
from paceline.study.tuning import put_trial, read_tuning
from tests.made_records import NAMES, SEARCH
from tests.record.test_point_config import CONFIG


def config(rate, tuning, workers=2):
    training = {**CONFIG["training"], "rate": rate}
    changes = {"training": training, "tuning": tuning, "workers": workers}
    changes |= {"global_batch_size": None, "trial": None, "batch_size": 32, "names": NAMES}
    return OmegaConf.create(CONFIG | changes | {"optimizer": {"lr": "${training.lr}"}})


def test_a_trial_has_its_own_rate():
    cfg = config("tuned", SEARCH)
    cfg.trial = {"lr": 0.3, "momentum": 0.5, "seed": 100}
    put_trial(cfg)
    assert (cfg.training.lr, cfg.training.momentum, cfg.seed) == (0.3, 0.5, 100)
    assert (cfg.optimizer.lr, cfg.training.rate) == (0.3, "by_rule")


@pytest.mark.parametrize("tuning", [None, SEARCH])
def test_a_rate_by_rule_is_as_set(tuning):
    cfg = config("by_rule", tuning)
    put_trial(cfg)
    assert cfg == config("by_rule", tuning)


@pytest.mark.parametrize(
    ("rate", "tuning", "message"),
    [
        ("best", None, "'best'; there are: by_rule, tuned"),
        ("tuned", None, "tuned, but the study has no tuning"),
        ("tuned", SEARCH, "found by the search of a study; run paceline sweep"),
    ],
)
def test_a_rate_that_cannot_be_is_named(rate, tuning, message):
    with pytest.raises(SettingError, match=f"training.rate: {message}"):
        put_trial(config(rate, tuning))


@pytest.mark.parametrize(
    ("tuning", "setting"),
    [
        ([0.1], "tuning"),
        ({}, "tuning.effective_rate"),
        (SEARCH | {"searches": 3}, "tuning.searches"),
        (SEARCH | {"effective_rate": 0}, "tuning.effective_rate"),
        (SEARCH | {"momentum": []}, "tuning.momentum"),
        (SEARCH | {"momentum": [0.9, 1]}, "tuning.momentum"),
        (SEARCH | {"own": {"gossip": {}}}, "tuning.own.gossip"),
        (SEARCH | {"own": {"gossip": {"scheme.graph": []}}}, "tuning.own.gossip.scheme.graph"),
        (SEARCH | {"rates": 0}, "tuning.rates"),
        (SEARCH | {"seed": -1}, "tuning.seed"),
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
def test_a_bad_trial_is_named(trial, setting):
    cfg = config("by_rule", None)
    cfg.trial = trial
    with pytest.raises(SettingError) as caught:
        put_trial(cfg)
    assert caught.value.setting == setting
