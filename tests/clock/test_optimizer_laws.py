"""The laws of the schemes with other optimizers than SGD: each holder of weights has a state."""

import pytest
from torch.testing import assert_close

from tests.clock.references import apart, averaged, plain, replayed
from tests.clock.test_laws import SCHEDULED
from tests.tiny import CLOCKS, run_tiny, run_together, tiny_point

OPTIMIZERS = {
    "torch.optim.AdamW": {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.9]},
    "torch.optim.RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "torch.optim.Adagrad": {"lr": 0.05},
}
LARS = {"lr": 5.0, "weight_decay": 0.1, "momentum": 0.5, "trust_coefficient": 0.01}
WHOLE = {"scheme__servers": 2, "scheme__sharding": "round_robin"}
LAWS = [  # scheme, workers and settings, and what the weights must be
    ("sync_allreduce", 4, {}, plain),
    ("sync_parameter_server", 4, {"scheme__servers": 2}, plain),
    ("mixed", 2, {"scheme__group_size": 2}, plain),
    ("local_sgd", 1, {"scheme__period": 3}, plain),
    ("async_parameter_server", 1, {"scheme__servers": 3}, plain),
    ("async_parameter_server", 3, {"scheme__servers": 2}, replayed),
    ("local_sgd", 2, {"scheme__period": 3}, averaged),
    ("independent", 3, {}, apart),
]
OF_TENSORS = [  # of an optimizer that computes with whole tensors
    ("sync_allreduce", 2, {}, plain),
    ("sync_parameter_server", 2, {}, plain),
    ("sync_parameter_server", 2, WHOLE, plain),
    ("local_sgd", 2, {"scheme__period": 3}, averaged),
]
ON_WALL = [
    ("torch.optim.AdamW", LAWS[1]),
    ("torch.optim.RMSprop", LAWS[5]),
    ("torch.optim.AdamW", LAWS[6]),
]


def check(clock, target, laws, folder):
    """The laws of one optimizer, one after the other."""
    options = {**OPTIMIZERS, "paceline.model.layerwise.LARS": LARS}[target]
    optimizer = {"_target_": target, "_partial_": True, **options}
    settings = {**SCHEDULED, "model__optimizer": optimizer, **CLOCKS[clock]}
    configs = [tiny_point(name, k, 4, **settings | own) for name, k, own, _ in laws]
    runs = run_together(configs, folder)
    for law, config, (seen, weights) in zip(laws, configs, runs, strict=True):
        expected = law[-1](config, seen)
        assert_close(weights, expected, rtol=1e-9, atol=1e-12, msg=f"{law}: {{}}".format)


@pytest.mark.slow
@pytest.mark.parametrize("target", OPTIMIZERS)
def test_laws_of_any_optimizer(target, tmp_path):
    check("virtual", target, LAWS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "law"), ON_WALL)
def test_laws_of_any_optimizer_on_real_processes(target, law, tmp_path):
    check("wall", target, [law], tmp_path)


@pytest.mark.parametrize("clock", [pytest.param("wall", marks=pytest.mark.slow), "virtual"])
def test_laws_of_whole_tensors(clock, tmp_path):
    check(clock, "paceline.model.layerwise.LARS", OF_TENSORS, tmp_path)


@pytest.mark.parametrize(
    ("scheme", "clock", "interval", "periods"),
    [
        ("sync_allreduce", "wall", "epoch", [1, 2]),
        ("sync_parameter_server", "wall", "step", [12, 24]),
        ("sync_allreduce", "virtual", "step", [12, 24]),
        ("local_sgd", "virtual", "epoch", [1, 2]),
        ("sync_parameter_server", "virtual", "epoch", [1, 2]),
    ],
)
def test_a_modules_scheduler_goes_by_samples_as_a_schedule_does(
    scheme, clock, interval, periods, tmp_path
):
    """Of 36 batches of all workers in three epochs."""
    constant = {**SCHEDULED, "training__schedule": "constant", "training__lr_rule": "none"}
    steps = {"schedule": "steps", "milestones": [1 / 3, 2 / 3], "gamma": 0.1, "lr_rule": "none"}
    module = {"model___target_": "tests.classifiers.ScheduledClassifier"}
    module |= {"model__interval": interval, "model__periods": periods}
    config = tiny_point(scheme, 2, 4, **constant, **module, **CLOCKS[clock])
    seen, weights = run_tiny(config, tmp_path)
    config["training"] |= steps
    expected = (averaged if scheme == "local_sgd" else plain)(config, seen)
    assert_close(weights, expected, rtol=1e-9, atol=1e-12)
