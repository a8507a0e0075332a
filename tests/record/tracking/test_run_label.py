"""The name of a run tells it from the others of its study."""

import pytest

from paceline.record.tracking.log import run_label

CONFIG = {
    "names": {"scheme": "gossip"},
    "workers": 16,
    "batch_size": 32,
    "seed": 3,
    "cluster": {"slow_workers": 1, "step_jitter": 0.3},
    "training": {"rate": "tuned"},
    "trial": None,
}


@pytest.mark.parametrize(
    ("axes", "label"),
    [
        ([], "seed 3"),
        (
            ["scheme", "workers", "cluster.slow_workers", "seed", "training.rate"],
            "gossip 16 workers slow 1 tuned seed 3",
        ),
        (["batch_size", "cluster.step_jitter"], "batch 32 step jitter 0.3 seed 3"),
        (["no.such", "trial"], "seed 3"),
    ],
)
def test_a_label_names_the_axes_and_the_seed_last(axes, label):
    assert run_label(CONFIG, axes) == label


def test_a_trial_is_named_by_what_it_tries():
    tried = CONFIG | {"trial": {"lr": 0.05418, "momentum": 0.25, "seed": 3}}
    label = "gossip tuning lr 0.0542 momentum 0.25 seed 3"
    assert run_label(tried, ["scheme", "training.rate"]) == label
