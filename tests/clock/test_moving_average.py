"""The moving average beside the weights is that of them after each update, on both clocks."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from paceline.clock.snapshot import MovingAverage, decay_per_sample
from paceline.errors import SettingError
from paceline.study.compose import composed
from tests.clock.references import Flat, apart, averaged, elastic, replayed
from tests.tiny import CLOCKS, point_of, run_tiny, run_together, tiny_point

DECAY, REFERENCE = 0.8, 8  # of TINY's lr_reference_batch_size


def average(expected, config, seen):
    """By numpy, of the changes that a reference tells: servers' parts, or the mean of workers'."""
    averages, flat = {}, Flat(config)

    def changed(holder, images, weights):
        first = flat.first[slice(*holder)] if isinstance(holder, tuple) else flat.first
        kept = DECAY ** (images / REFERENCE)
        before = averages.get(holder, first.numpy())
        averages[holder] = kept * before + (1 - kept) * weights.numpy()

    expected(config, seen, changed)
    parts = [torch.from_numpy(averages[holder]) for holder in sorted(averages)]
    at_servers = isinstance(next(iter(averages)), tuple)
    return flat.named(torch.cat(parts) if at_servers else torch.stack(parts).mean(0))


SCHEMES = [
    ("sync_allreduce", {}, averaged),
    ("sync_parameter_server", {"servers": 2}, replayed),
    ("async_parameter_server", {"servers": 2}, replayed),
    ("elastic_averaging", {"period": 3}, elastic),
    ("local_sgd", {"period": 2}, averaged),
    ("independent", {}, apart),
]


@pytest.mark.parametrize("clock", CLOCKS)
def test_what_is_evaluated_is_the_average_of_all_weights(clock, tmp_path):
    configs = [averaging(*each, DECAY, **CLOCKS[clock]) for *each, _ in SCHEMES]
    found = run_together(configs, tmp_path)
    for (scheme, _, expected), config, (seen, weights) in zip(SCHEMES, configs, found, strict=True):
        assert_close(
            *(weights, average(expected, config, seen)),
            rtol=1e-12,
            atol=1e-14,
            msg=f"{scheme}: {{}}".format,
        )


@pytest.mark.parametrize(("scheme", "settings", "expected"), [SCHEMES[0], SCHEMES[2]])
def test_the_average_of_split_workers_is_that_of_whole_ones(scheme, settings, expected, tmp_path):
    """Synchronous processes average their slices, servers the whole weights."""
    config = averaging(scheme, settings, DECAY, model__shards=2)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, average(expected, config, seen), rtol=1e-12, atol=1e-14)
    assert all(worker.activation_bytes_sent > 0 for worker in seen.workers)


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [(name, settings) for name, settings, _ in SCHEMES]
    + [("gossip", {}), ("post_local_sgd", {}), ("sync_then_async", {}), ("mixed", {})],
)
def test_a_decay_of_zero_evaluates_the_weights_themselves(scheme, settings, tmp_path):
    virtual = CLOCKS["virtual"]
    one, plain = run_tiny(averaging(scheme, settings, None, **virtual), tmp_path)
    two, averaged = run_tiny(averaging(scheme, settings, 0, **virtual), tmp_path)
    assert all(torch.equal(averaged[name], plain[name]) for name in plain)
    for without, both in zip(one.training[0].scores, two.training[0].scores, strict=True):
        assert (without.top1, without.averaged_top1) == (both.averaged_top1, None)
    told = ["moving average" in seen.training[0].evaluated for seen in (one, two)]
    assert told == [False, True]


@pytest.mark.parametrize("clock", CLOCKS)
def test_an_average_changes_no_score_of_the_weights(clock, tmp_path):
    """By a share of 1e-9 it stays at the first weights; one worker leaves nothing to chance."""
    scores = []
    for decay in (None, 1 - 1e-9):
        config = averaging("sync_allreduce", {}, decay, **CLOCKS[clock]) | {"workers": 1}
        seen, weights = run_tiny(config, tmp_path)
        (report,) = seen.training
        scores.append([(each.top1, each.loss) for each in (*report.scores, report.test)])
    assert scores[0] == scores[1]
    flat = Flat(config)
    assert_close(weights, flat.named(flat.first), rtol=0, atol=1e-6)


def averaging(scheme, settings, decay, **others):
    config = tiny_point(scheme, 2, 8, training__ema_decay=decay, **others)
    config["scheme"] |= settings
    return config


def test_weights_of_eight_bits_of_precision_are_not_averaged():
    settings = ("data=synthetic", "training.ema_decay=0.999", "training.precision=bf16-true")
    with pytest.raises(SettingError, match=r"^training\.ema_decay: .*bf16-true"):
        point_of(dict(composed(settings, Path(__file__).parents[2]).values))


@pytest.mark.parametrize("images", [[64], [32, 32], [1] * 64])
def test_the_share_that_is_kept_goes_by_samples_whatever_the_updates(images):
    average = MovingAverage([torch.ones(1, dtype=torch.float64)], decay_per_sample(0.9, 32))
    for each in images:
        average.update([torch.zeros(1, dtype=torch.float64)], each)
    assert average.weights[0].item() == pytest.approx(0.9**2, rel=1e-12)
