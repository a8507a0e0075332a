"""Which of the three sets of images each score is of."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from paceline.data.batches import Normalisation
from tests.tiny import CLOCKS, TinyImages, run_tiny, tiny_network, tiny_point


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_curve_is_of_validation_and_the_test_of_test_images(clock, tmp_path):
    config = tiny_point("local_sgd", 2, 4, training__epochs=1, **CLOCKS[clock])
    seen, weights = run_tiny(config, tmp_path)
    network = tiny_network().double()
    network.load_state_dict({name.removeprefix("network."): w for name, w in weights.items()})
    splits = TinyImages(**{k: v for k, v in config["data"].items() if k[0] != "_"}).load()
    normalise = Normalisation(splits.mean, splits.std, torch.float64)

    def loss(part):
        with torch.no_grad():
            return float(cross_entropy(network(normalise(part.images)), part.labels))

    last = max((s for each in seen.training for s in each.scores), key=lambda s: s.samples)
    (test,) = [each.test for each in seen.training if each.test]
    assert_close([last.loss, test.loss], [loss(splits.validation), loss(splits.test)])
    assert (
        len({round(loss(part), 6) for part in (splits.train, splits.validation, splits.test)}) == 3
    )
