"""The laws of the schemes with other optimizers than SGD: each holder of weights has a state."""

import pytest
from torch.testing import assert_close

from tests.clock.references import apart, averaged
from tests.clock.replay import replayed
from tests.clock.test_laws import SCHEDULED, plain
from tests.tiny import CLOCKS, run_tiny, tiny_point

LAYERWISE = {
    "LARS": {"lr": 5.0, "weight_decay": 0.1, "momentum": 0.5, "trust_coefficient": 0.01},
}
OPTIMIZERS = {
    "AdamW": {"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.9]},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "Adagrad": {"lr": 0.05},
}
LAWS = {  # scheme, workers and settings, and what the weights must be
    "K workers are one with K times the batch": ("sync_allreduce", 4, {}, plain),
    "so they are by servers": ("sync_parameter_server", 4, {"scheme__servers": 2}, plain),
    "and by groups": ("mixed", 2, {"scheme__group_size": 2}, plain),
    "one worker is the optimizer": ("local_sgd", 1, {"scheme__period": 3}, plain),
    "one worker is the optimizer at servers": (
        "async_parameter_server",
        1,
        {"scheme__servers": 3},
        plain,
    ),
    "replaying the pushes": ("async_parameter_server", 3, {"scheme__servers": 2}, replayed),
    "loops that meet": ("local_sgd", 2, {"scheme__period": 3}, averaged),
    "loops apart": ("independent", 3, {}, apart),
}
WHOLE = {"scheme__servers": 2, "scheme__sharding": "round_robin"}
OF_TENSORS = {  # laws of optimizers that compute with whole tensors
    "K workers are one with K times the batch": ("sync_allreduce", 2, {}, plain),
    "so they are by one server": ("sync_parameter_server", 2, {}, plain),
    "so they are by servers of whole tensors": ("sync_parameter_server", 2, WHOLE, plain),
    "loops that meet": ("local_sgd", 2, {"scheme__period": 3}, averaged),
}
ON_WALL = [
    ("AdamW", "so they are by servers"),
    ("RMSprop", "replaying the pushes"),
    ("AdamW", "loops that meet"),
]
CASES = [
    *((name, law, "virtual") for name in OPTIMIZERS for law in LAWS),
    *((name, law, "wall") for name, law in ON_WALL),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "law", "clock"), CASES)
def test_law(name, law, clock, tmp_path):
    scheme, workers, settings, expected = LAWS[law]
    optimizer = {"_target_": f"torch.optim.{name}", "_partial_": True, **OPTIMIZERS[name]}
    settings = {**SCHEDULED, "model__optimizer": optimizer, **settings, **CLOCKS[clock]}
    config = tiny_point(scheme, workers, 4, **settings)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, expected(config, seen), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", LAYERWISE)
@pytest.mark.parametrize("law", OF_TENSORS)
@pytest.mark.parametrize("clock", [pytest.param("wall", marks=pytest.mark.slow), "virtual"])
def test_law_of_whole_tensors(name, law, clock, tmp_path):
    scheme, workers, settings, expected = OF_TENSORS[law]
    target = f"paceline.model.layerwise.{name}"
    optimizer = {"_target_": target, "_partial_": True, **LAYERWISE[name]}
    settings = {**SCHEDULED, "model__optimizer": optimizer, **settings, **CLOCKS[clock]}
    config = tiny_point(scheme, workers, 8, **settings)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, expected(config, seen), rtol=1e-9, atol=1e-12)


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
    module = {"_target_": "tests.classifiers.ScheduledClassifier", "interval": interval}
    module |= {"periods": periods}
    settings = {**constant, **{f"model__{name}": each for name, each in module.items()}}
    config = tiny_point(scheme, 2, 4, **settings, **CLOCKS[clock])
    seen, weights = run_tiny(config, tmp_path)
    config["training"] |= steps
    expected = (averaged if scheme == "local_sgd" else plain)(config, seen)
    assert_close(weights, expected, rtol=1e-9, atol=1e-12)
