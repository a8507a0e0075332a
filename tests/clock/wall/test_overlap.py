"""Pushes that leave during backward, over TCP: the same weights, bit for bit."""

import torch
from torch.testing import assert_close

from tests.tiny import run_together, tiny_point

COUNTED = {
    "_target_": "paceline.timing.workload.CountedNetwork",
    "name": "made",
    "image_shape": [3, 4, 4],
    "num_classes": 2,
    "layers": [["first", 1000, 2, 1], ["second", 500, 1, 1], ["third", 3000, 1, 1]],
}
PACED = {"workload": COUNTED, "cluster__step_seconds": 0.01}


def configured(overlap, servers, batch_norm, num_early, settings):
    config = tiny_point(
        "sync_parameter_server",
        2,
        8,
        scheme__overlap=overlap,
        scheme__servers=servers,
        model___target_="tests.clock.wall.elsewhere.ElsewhereClassifier",
        model__num_early=num_early if overlap else 0,
        **settings,
    )
    config["model"]["network"]["batch_norm"] = batch_norm
    return config


def test_overlap_changes_neither_weights_nor_bytes(tmp_path):
    """Parts: 4 parameters; 6, of which two come at once; all layers of the workload but one."""
    cases = [(1, False, 4, {}), (2, True, 5, {}), (2, False, 2, PACED)]
    configs = [configured(overlap, *case) for case in cases for overlap in (True, False)]
    found = run_together(configs, tmp_path)
    for case, (early, weights), (whole, expected) in zip(
        cases, found[::2], found[1::2], strict=True
    ):
        assert_close(
            weights, expected, rtol=0, atol=0, msg=lambda said, case=case: f"{case}: {said}"
        )
        assert counted(early) == counted(whole), case
        assert all(torch.isfinite(value).all() for value in weights.values())


def counted(seen):
    """Bytes of workers and servers, and losses."""
    sent = [(each.bytes_sent, each.bytes_received) for each in (*seen.workers, *seen.servers)]
    return sent, [[score.loss for score in each.scores] for each in seen.training]
