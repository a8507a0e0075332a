"""Clipping clips what is applied to the weights, on both clocks, or is refused."""

import math

import pytest
from torch.testing import assert_close

from paceline.record.target import Target
from paceline.scheme.counts import Counts
from tests.clock.references import averaged, plain, replayed
from tests.tiny import CLOCKS, CONF, PlainSGD, run_tiny, tiny_point

CLIP = 0.1


PLAIN = "sync_allreduce"
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
    PLAIN: [{}],
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


LAWS = [
    (PLAIN, 2, "wall", plain),
    *((PLAIN, 1, clock, plain) for clock in CLOCKS),
    *(("async_parameter_server", 2, clock, replayed) for clock in CLOCKS),
    *(("local_sgd", 2, clock, averaged) for clock in CLOCKS),
]


@pytest.mark.parametrize(
    ("scheme", "workers", "clock", "expected", "algorithm"),
    [(*law, "norm") for law in LAWS]
    + [(*law, "value") for law in LAWS if law[2] == "virtual" or law == LAWS[0]],
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
