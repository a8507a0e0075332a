"""The laws of the schemes with other optimizers than SGD, schedulers, and clipped gradients."""

import math

import pytest
from torch.testing import assert_close

from paceline.record.target import Target
from paceline.scheme.counts import Counts
from tests.clock.references import apart, averaged, plain, replayed
from tests.clock.test_laws import SCHEDULED
from tests.tiny import CLOCKS, CONF, PlainSGD, run_tiny, run_together, tiny_point

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


CLIP = 0.1


OWN = {
    "async_parameter_server": [{}, {"damping": "inverse_staleness"}],
    "sync_parameter_server": [{"backup_workers": 3}],
    "mixed": [{"group_size": 1}],
    "sync_then_async": [{"switch_at": 0}],
    "post_local_sgd": [{"switch_at": 0}],
    **{name: [{}] for name in ("elastic_averaging", "gossip", "independent", "local_sgd")},
    "stale_synchronous": [{}],
}
SHARED = {
    "sync_allreduce": [{}],
    "async_parameter_server": [{"damping": "delay_compensation"}],
    "sync_parameter_server": [{}, {"backup_workers": 2}],
    "mixed": [{}, {"group_size": 4}],
    "sync_then_async": [{}, {"switch_at": 0.01}],
    "post_local_sgd": [{}, {"switch_at": 0.01}],
}


def counts(name, workers, **settings):
    scheme = Target("scheme", tiny_point(name, 4, 4)["scheme"] | settings).build()
    return Counts(scheme, workers)


def test_means_of_gradients_are_not_what_a_worker_clips():
    for cases, own in ((OWN, True), (SHARED, False)):
        for name, each in cases.items():
            for settings in each:
                found = counts(name, 4, **settings).applies_own_gradients
                assert found == own, (name, settings)
    for path in sorted((CONF / "scheme").glob("*.yaml")):  # one worker has only its own gradient
        settings = {"group_size": 1} if path.stem == "mixed" else {}
        assert counts(path.stem, 1, **settings).applies_own_gradients, path


def by_norm(parts):
    """As torch.nn.utils.clip_grad_norm_ defines it."""
    norm = math.sqrt(sum(float(part.square().sum()) for part in parts))
    return [part * min(1, CLIP / (norm + 1e-6)) for part in parts]


def by_value(parts):
    """As torch.nn.utils.clip_grad_value_ defines it."""
    return [part.clamp(-CLIP, CLIP) for part in parts]


CLIPPED = [
    ("sync_allreduce", 2, "wall", plain),
    *(("sync_allreduce", 1, clock, plain) for clock in CLOCKS),
    *(("async_parameter_server", 2, clock, replayed) for clock in CLOCKS),
    *(("local_sgd", 2, clock, averaged) for clock in CLOCKS),
]


@pytest.mark.parametrize(
    ("scheme", "workers", "clock", "expected", "algorithm"),
    [(*law, "norm") for law in CLIPPED]
    + [(*law, "value") for law in CLIPPED if law[2] == "virtual" or law == CLIPPED[0]],
)
def test_a_bare_loop_that_clips_what_it_applies(
    scheme, workers, clock, expected, algorithm, tmp_path, monkeypatch
):
    clip = {"training__gradient_clip_val": CLIP, "training__gradient_clip_algorithm": algorithm}
    config = tiny_point(scheme, workers, 8, **clip, **CLOCKS[clock])
    if scheme == "local_sgd":
        config["scheme"]["period"] = 3
    seen, weights = run_tiny(config, tmp_path)
    unclipped = expected(config, seen)
    clipped, gradient = {"norm": by_norm, "value": by_value}[algorithm], PlainSGD.gradient
    monkeypatch.setattr(PlainSGD, "gradient", lambda *each: clipped(gradient(*each)))
    assert_close(weights, expected(config, seen), rtol=1e-12, atol=1e-14)
    assert (weights["1.weight"] - unclipped["1.weight"]).abs().max() > 1e-3
