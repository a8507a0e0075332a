"""Clipping clips what is applied to the weights, on both clocks, or is refused."""

import math

import pytest
from torch.testing import assert_close

from paceline.record.target import Target
from paceline.scheme.counts import Counts
from tests.clock.references import averaged, plain_weights
from tests.clock.replay import replayed
from tests.tiny import CLOCKS, CONF, PlainSGD, run_tiny, tiny_point

CLIP = 0.1
PLAIN = "sync_allreduce"
SHARED = (PLAIN, "sync_parameter_server", "mixed", "sync_then_async", "post_local_sgd")
OWN = (
    "async_parameter_server",
    "elastic_averaging",
    "gossip",
    "independent",
    "local_sgd",
    "stale_synchronous",
)


def scheme_of(name, **settings):
    return Target("scheme", tiny_point(name, 4, 4)["scheme"] | settings).build()


@pytest.mark.parametrize(
    ("name", "settings", "own"),
    [
        *((name, {}, name in OWN) for name in SHARED + OWN),
        ("async_parameter_server", {"damping": "inverse_staleness"}, True),
        ("async_parameter_server", {"damping": "delay_compensation"}, False),
        ("sync_parameter_server", {"backup_workers": 2}, False),
        ("sync_parameter_server", {"backup_workers": 3}, True),
        ("mixed", {"group_size": 4}, False),
        ("mixed", {"group_size": 1}, True),
        ("sync_then_async", {"switch_at": 0.01}, False),
        ("sync_then_async", {"switch_at": 0}, True),
        ("post_local_sgd", {"switch_at": 0.01}, False),
        ("post_local_sgd", {"switch_at": 0}, True),
    ],
)
def test_means_of_gradients_are_not_what_a_worker_clips(name, settings, own):
    assert Counts(scheme_of(name, **settings), 4).applies_own_gradients == own


def test_one_worker_has_only_its_own_gradient():
    for path in sorted((CONF / "scheme").glob("*.yaml")):
        settings = {"group_size": 1} if path.stem == "mixed" else {}
        assert Counts(scheme_of(path.stem, **settings), 1).applies_own_gradients, path


def clipped(gradient):
    """As torch.nn.utils.clip_grad_norm_ defines it."""

    def found(self, *batch):
        parts = gradient(self, *batch)
        norm = math.sqrt(sum(float(part.square().sum()) for part in parts))
        return [part * min(1, CLIP / (norm + 1e-6)) for part in parts]

    return found


def clipped_by_value(gradient):
    """As torch.nn.utils.clip_grad_value_ defines it."""
    return lambda self, *batch: [part.clamp(-CLIP, CLIP) for part in gradient(self, *batch)]


def plain(config, seen):
    """Of the mean: the gradient of all workers' images together."""
    return plain_weights(config)


LAWS = [
    (PLAIN, 2, "wall", plain),
    *((PLAIN, 1, clock, plain) for clock in CLOCKS),
    *(("async_parameter_server", 2, clock, replayed) for clock in CLOCKS),
    *(("local_sgd", 2, clock, averaged) for clock in CLOCKS),
]


BY = {"norm": clipped, "value": clipped_by_value}


@pytest.mark.parametrize(
    ("scheme", "workers", "clock", "expected", "algorithm"),
    [(*law, "norm") for law in LAWS]
    + [(*law, "value") for law in LAWS if law[2] == "virtual" or law == LAWS[0]],
)
def test_a_bare_loop_that_clips_what_it_applies(
    scheme, workers, clock, expected, algorithm, tmp_path, monkeypatch
):
    config = tiny_point(
        scheme,
        workers,
        8,
        training__gradient_clip_val=CLIP,
        training__gradient_clip_algorithm=algorithm,
        **CLOCKS[clock],
    )
    if scheme == "local_sgd":
        config["scheme"]["period"] = 3
    seen, weights = run_tiny(config, tmp_path)
    unclipped = expected(config, seen)
    monkeypatch.setattr(PlainSGD, "gradient", BY[algorithm](PlainSGD.gradient))
    assert_close(weights, expected(config, seen), rtol=1e-12, atol=1e-14)
    assert (weights["1.weight"] - unclipped["1.weight"]).abs().max() > 1e-3
