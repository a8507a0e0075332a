"""Pushes that leave during backward, over TCP: the same weights, bit for bit."""

import pytest
import torch
from torch.testing import assert_close

from tests.tiny import run_tiny, tiny_point

COUNTED = {
    "_target_": "paceline.timing.workload.CountedNetwork",
    "name": "made",
    "image_shape": [3, 4, 4],
    "num_classes": 2,
    "layers": [["first", 1000, 2, 1], ["second", 500, 1, 1], ["third", 3000, 1, 1]],
}
PACED = {"workload": COUNTED, "cluster__step_seconds": 0.01}


def run(folder, overlap, servers=1, batch_norm=False, num_early=0, **settings):
    folder.mkdir()
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
    seen, weights = run_tiny(config, folder)
    sent = [(each.bytes_sent, each.bytes_received) for each in (*seen.workers, *seen.servers)]
    return weights, sent, [each.scores for each in seen.training]


@pytest.mark.parametrize(
    ("servers", "batch_norm", "num_early", "settings"),
    [(1, False, 4, {}), (2, True, 5, {}), (2, False, 2, PACED)],
)
def test_overlap_changes_neither_weights_nor_bytes(
    servers, batch_norm, num_early, settings, tmp_path
):
    """Parts: 4 parameters; 6, of which two come at once; all layers of the workload but one."""
    options = {"servers": servers, "batch_norm": batch_norm, "num_early": num_early, **settings}
    (early, *counted), (whole, *expected) = (
        run(tmp_path / str(overlap), overlap, **options) for overlap in (True, False)
    )
    assert_close(early, whole, rtol=0, atol=0)
    assert counted[0] == expected[0]
    assert [[each.loss for each in scores] for scores in counted[1]] == [
        [each.loss for each in scores] for scores in expected[1]
    ]
    assert all(torch.isfinite(value).all() for value in early.values())
