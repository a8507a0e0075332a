"""A search tries a grid of rates, wider ones where the best is at an edge, and repeats the best.

A point by itself may have a trial's rate, and none that only a whole study finds.
"""

import math

import pytest
from omegaconf import OmegaConf

from paceline.errors import SettingError
from paceline.study.search import GridSearch, Trial, trial_of
from paceline.study.tuning import put_trial, read_tuning
from tests.made_records import NAMES
from tests.made_records import SEARCH as TUNING
from tests.record.test_point_config import CONFIG

SEARCH = {"effective_rate": 0.5, "momentum": [0.0, 0.9], "seed": 100}


def effective(trial):
    return trial.lr / (1 - trial.momentum)


def searched(top1_of, scheme="gossip", **settings):
    """Trials of a search in the order of their rounds, with the best trial."""
    search, results, rounds = GridSearch(**(SEARCH | settings)), {}, []
    while not (tried := search.tried(scheme, results.get)).best:
        rounds.append([trial for trial in tried.trials if trial not in results])
        assert rounds[-1], "a search that waits for nothing has to choose"
        for trial in rounds[-1]:
            top1 = top1_of(trial)
            status = "diverged" if math.isnan(top1) else "finished"
            results[trial] = {"status": status, "top1": top1}
    return rounds, tried


def peak(rate):
    """Accuracy that falls by 0.02 for each factor of two between `rate` and the effective rate."""
    return lambda trial: 0.9 - 0.02 * abs(math.log2(effective(trial) / rate))


def test_the_grid_has_rates_a_factor_of_two_apart_for_each_momentum():
    (first, finals), tried = searched(peak(0.5))
    rates = [0.125, 0.25, 0.5, 1.0, 2.0]
    assert [effective(trial) for trial in first] == pytest.approx(2 * rates)
    assert [trial.momentum for trial in first] == [0.0] * 5 + [0.9] * 5
    assert {trial.seed for trial in first} == {100}
    assert tried.trials == (*first, *finals)
    assert effective(tried.best) == 0.5
    assert tried.edge == ""


def test_a_grid_is_widened_by_three_rates_at_most():
    side = {5: "highest learning rate", -5: "lowest learning rate"}
    for step in range(-6, 7):
        rounds, tried = searched(peak(0.5 * 2.0**step))
        last = max(-5, min(step, 5))
        assert effective(tried.best) == pytest.approx(0.5 * 2.0**last, rel=1e-3)
        beyond = max(0, min(abs(step) - 1, 3))  # the neighbour of the best one has to be tried
        assert [len(trials) for trials in rounds] == [10, *[2] * beyond, 9]
        assert tried.edge == side.get(last, "")


def test_fresh_seeds_choose_among_the_three_best():
    """One lucky run of the grid is not enough."""
    lucky = Trial(lr=0.2, momentum=0.9, seed=100)  # an effective rate of 2

    def top1(trial):
        return 0.95 if trial == lucky else peak(0.5)(trial)

    *_, finals = (rounds := searched(top1))[0]
    assert [trial.seed for trial in finals] == [101, 102, 103] * 3
    assert lucky.lr in {trial.lr for trial in finals}
    assert effective(rounds[1].best) == 0.5


def test_trials_that_did_not_train_are_behind_all_that_did():
    """Where nothing trains, the lowest rate is at the edge."""
    rounds, tried = searched(lambda trial: math.nan)
    assert [len(trials) for trials in rounds] == [10, 2, 2, 2, 9]
    assert effective(tried.best) == min(map(effective, tried.trials))
    assert tried.edge == "lowest learning rate"
    _, tried = searched(lambda trial: math.nan if effective(trial) > 0.2 else 0.3)
    assert effective(tried.best) <= 0.2


def test_each_value_of_a_scheme_has_a_grid():
    own = {"local_sgd": {"scheme.period": [2, 8]}}

    def top1(trial):
        return peak(0.5)(trial) + 0.1 * (dict(trial.own)["scheme.period"] == 8)

    (first, _), tried = searched(top1, "local_sgd", own=own)
    assert len(first) == 2 * 2 * 5
    assert tried.best.own == (("scheme.period", 8),)
    assert len(searched(peak(0.5), "gossip", own=own)[0][0]) == 10
    assert GridSearch(**SEARCH, own=own).names("local_sgd")[-1] == "scheme.period"


def test_a_trial_is_read_back_from_its_row():
    trial = Trial(lr=0.0125, momentum=0.9, seed=101, own=(("scheme.graph", "ring"),))
    row = {"lr": "0.0125", "momentum": "0.9", "seed": "101", "own": trial.own_text}
    assert trial_of(row) == trial


def test_a_value_that_a_table_would_change_is_refused():
    """As text, 1e-05 is a word to YAML, and None is one, too."""
    for value in (1e-05, None, "1", [1]):
        with pytest.raises(SettingError, match=r"^tuning\.own\.gossip\.scheme\.share"):
            GridSearch(**SEARCH, own={"gossip": {"scheme.share": [0.5, value]}})


def config(rate, tuning, workers=2):
    training = {**CONFIG["training"], "rate": rate}
    changes = {"training": training, "tuning": tuning, "workers": workers}
    changes |= {"global_batch_size": None, "trial": None, "batch_size": 32, "names": NAMES}
    return OmegaConf.create(CONFIG | changes | {"optimizer": {"lr": "${training.lr}"}})


def test_a_rate_by_rule_is_as_set_and_one_that_cannot_be_is_named():
    cfg = config("by_rule", TUNING)
    put_trial(cfg)
    assert cfg == config("by_rule", TUNING)
    for rate, tuning, message in (
        ("best", None, "'best'; there are: by_rule, tuned"),
        ("tuned", None, "tuned, but the study has no tuning"),
        ("tuned", TUNING, "found by the search of a study; run paceline sweep"),
    ):
        with pytest.raises(SettingError, match=f"training.rate: {message}"):
            put_trial(config(rate, tuning))


def put(trial):
    cfg = config("by_rule", None)
    cfg.trial = trial
    put_trial(cfg)


BAD = {"searches": 3, "effective_rate": 0, "momentum": [0.9, 1], "rates": 0, "seed": -1}


def test_a_bad_tuning_or_trial_is_named():
    for read, value, setting in (
        (read_tuning, [0.1], "tuning"),
        (read_tuning, {}, "tuning.effective_rate"),
        *((read_tuning, TUNING | {name: value}, f"tuning.{name}") for name, value in BAD.items()),
        (read_tuning, TUNING | {"own": {"gossip": {}}}, "tuning.own.gossip"),
        (read_tuning, TUNING | {"own": {"gossip": {"scheme.x": []}}}, "tuning.own.gossip.scheme.x"),
        (put, 3, "trial"),
        (put, {"lr": 0, "momentum": 0.9, "seed": 0}, "trial.lr"),
        (put, {"lr": 0.1, "momentum": 1, "seed": 0}, "trial.momentum"),
    ):
        with pytest.raises(SettingError) as caught:
            read(value)
        assert caught.value.setting == setting
