"""How a study was run, in words: what its tables do not say is left out."""

import pytest

from paceline.report.how_it_was_run import how_it_was_run
from tests.made_reports import make_run

SAID = {
    "training.momentum": (0.9, "momentum 0.9"),
    "training.weight_decay": (0.0, "weight decay 0"),
    "training.schedule": ("cosine", "cosine schedule"),
    "training.lr_rule": ("square_root", "rate rule square root"),
    "training.ema_decay": (
        0.99,
        "moving average of the weights with decay 0.99 evaluated beside them",
    ),
}


def optimizer(findings, **settings):
    found = findings([make_run()], settings=settings)
    return dict(how_it_was_run(found)).get("Optimizer")


def test_the_optimizer_is_told_by_its_settings(findings):
    known = {name: value for name, (value, _) in SAID.items()}
    assert optimizer(findings, **known) == ", ".join(
        ["SGD", *(words for _, words in SAID.values())]
    )


@pytest.mark.parametrize("unknown", SAID)
def test_a_setting_that_is_not_known_is_not_told(findings, unknown):
    known = {name: value for name, (value, _) in SAID.items()}
    told = ", ".join(["SGD", *(words for name, (_, words) in SAID.items() if name != unknown)])
    assert optimizer(findings, **known | {unknown: None}) == told


def test_without_settings_nothing_is_told(findings):
    assert optimizer(findings) is None
