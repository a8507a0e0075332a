"""Which of the three sets of images each score is of."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from tests.tiny import CLOCKS, evaluated, run_tiny, tiny_network, tiny_point


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_curve_is_of_validation_and_the_test_of_test_images(clock, tmp_path):
    config = tiny_point("local_sgd", 2, 4, training__epochs=1, **CLOCKS[clock])
    seen, weights = run_tiny(config, tmp_path)
    network = tiny_network().double()
    network.load_state_dict(weights)
    losses = {}
    for part in ("train", "validation", "test"):
        images, labels = evaluated(config, part)
        with torch.no_grad():
            losses[part] = float(cross_entropy(network(images), labels))
    last = max((s for each in seen.training for s in each.scores), key=lambda s: s.samples)
    (test,) = [each.test for each in seen.training if each.test]
    assert_close([last.loss, test.loss], [losses["validation"], losses["test"]])
    assert len(set(losses.values())) == 3
