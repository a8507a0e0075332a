"""Which corrections for stale gradients go with which scheme, by the project's own settings."""

from pathlib import Path

import pytest

from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.study.compose import composed

REPOSITORY = Path(__file__).parents[2]
RULE, MOMENTUM = "training.lr_rule=inverse_staleness", "training.momentum_correction=asynchrony"
SWITCHED, ASYNC = "scheme=sync_then_async", "scheme=async_parameter_server"
DAMPED = "scheme.damping=inverse_staleness"


def checked(*settings):
    Point.of(composed(("data=synthetic", "cluster=virtual", "workers=4", *settings), REPOSITORY))


@pytest.mark.parametrize("switch_at", [0.01, 0.5, 0.99])
def test_the_momentum_of_a_run_cannot_be_that_of_both_its_phases(switch_at):
    with pytest.raises(SettingError, match=r"^training\.momentum_correction: .*switch_at=0"):
        checked(SWITCHED, MOMENTUM, f"scheme.switch_at={switch_at}")


def test_the_warm_up_is_counted_in_epochs_and_the_schedule_in_the_budget():
    settings = ("training.lr_rule=linear", "training.warmup_epochs=2", "training.schedule=poly")
    point = Point.of(composed(("data=synthetic", *settings), REPOSITORY))
    rate = point.training.learning_rate(images_per_update=32, epoch=100, samples=1000)
    assert (rate.warmup_samples, rate.total_samples) == (200, 1000)


def test_gradients_are_not_divided_by_their_staleness_twice():
    with pytest.raises(SettingError, match=r"^training\.lr_rule: .*scheme\.damping"):
        checked(ASYNC, RULE, DAMPED)


@pytest.mark.parametrize(
    "settings",
    [
        (SWITCHED, MOMENTUM, "scheme.switch_at=0"),
        (SWITCHED, MOMENTUM, "scheme.switch_at=1"),
        (SWITCHED, RULE, "scheme.switch_at=0.5"),
        ("scheme=post_local_sgd", MOMENTUM, "scheme.switch_at=0.5"),
        (ASYNC, MOMENTUM, RULE),
        (ASYNC, MOMENTUM, DAMPED),
        (ASYNC, RULE, "scheme.damping=delay_compensation"),
        (ASYNC, "training.lr_rule=linear", DAMPED),
    ],
)
def test_what_acts_once_and_in_time_passes(settings):
    checked(*settings)
