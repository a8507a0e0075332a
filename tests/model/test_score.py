import math
from dataclasses import astuple

import numpy as np
import pytest
import torch
from torch import nn

from paceline.model.score import Score, score

LOGITS = torch.tensor(
    [
        [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
        [5.0, 6.0, 4.0, 3.0, 2.0, 1.0],
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
    ]
)
LABELS = torch.tensor([0, 0, 0, 1, 0])  # first, second, last, fifth, first
RIGHT = [1, 0, 0, 0, 1]


def uneven_batches(logits, labels):
    return [(logits[:2], labels[:2]), (logits[2:], labels[2:])]


def test_means_over_images_of_uneven_batches_by_hand():
    total = math.log(sum(math.exp(logit) for logit in range(1, 7)))
    loss = sum(total - logit for logit in (6, 5, 1, 2, 6)) / 5
    measured = score(nn.Identity(), uneven_batches(LOGITS, LABELS), "cpu")
    assert astuple(measured)[:-1] == pytest.approx((loss, 2 / 5, 4 / 5, 5, 6, 4 / 5), rel=1e-6)
    assert np.unpackbits(np.frombuffer(measured.right, np.uint8), count=5).tolist() == RIGHT


def test_top5_of_three_classes_is_one():
    labels = torch.tensor([0, 1, 2, 0, 1])
    measured = score(nn.Identity(), uneven_batches(LOGITS[:, :3], labels), "cpu")
    assert measured.top5 == 1


def test_a_diverged_network_has_no_loss():
    measured = score(nn.Identity(), uneven_batches(LOGITS * math.nan, LABELS), "cpu")
    assert math.isnan(measured.loss)


def test_scoring_perturbs_nothing():
    network = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout())
    network[1].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    random_state = torch.get_rng_state()
    score(network, uneven_batches(LOGITS, LABELS), "cpu")
    assert [network.training, network[0].training, network[1].training] == [True, True, False]
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize(("top1", "at_chance"), [(0.10, True), (0.139, True), (0.141, False)])
def test_chance_is_within_three_standard_errors_of_guessing(top1, at_chance):
    """Of 500 images, a tenth of which have one label: 0.1 + 3 x sqrt(0.1 x 0.9 / 500) = 0.1402."""
    found = Score(loss=2.3, top1=top1, top5=0.5, num_images=500, num_classes=20, largest_class=0.1)
    assert found.at_chance == at_chance
