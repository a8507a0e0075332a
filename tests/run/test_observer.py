"""What a run tells of itself while it runs."""

import csv

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from paceline.run.observer import Observer
from tests.tiny import CLOCKS, evaluated, run_tiny, tiny_network, tiny_point


class ByHand:
    """A real clock and a training clock that the test sets, and the samples so far."""

    def __init__(self):
        self.real, self.modelled, self.num_samples = 0.0, 0.0, 0

    def seconds(self):
        return self.real


def rows_of(path, training_seconds, steps):
    """The rows after `steps` of (real seconds, modelled seconds, samples)."""
    hand = ByHand()
    observer = Observer(
        hand,
        lambda loss: [(hand.num_samples, loss)],
        [64, 128],
        live=path,
        training_seconds=lambda real: training_seconds(hand, real),
    )
    for hand.real, hand.modelled, hand.num_samples in steps:
        observer.on_train_batch_end(None, None, torch.tensor(0.5))
    with path.open() as file:
        return list(csv.DictReader(file))


STEPS = [(0.5, 10.0, 32), (1.0, 20.0, 64), (1.5, 30.0, 96), (2.5, 20.0, 96), (3.5, 60.0, 128)]


def test_a_row_comes_once_a_real_second_with_real_seconds(tmp_path):
    rows = rows_of(tmp_path / "progress.csv", lambda hand, real: real, STEPS)
    assert [float(row["seconds"]) for row in rows] == [1.0, 2.5, 3.5]
    assert [float(row["images_per_second"]) for row in rows] == pytest.approx(
        [64, 32 / 1.5, 32], rel=1e-5
    )


def test_a_row_comes_once_a_real_second_with_modelled_seconds(tmp_path):
    """Where the modelled ones stood still there is no rate."""
    rows = rows_of(tmp_path / "progress.csv", lambda hand, real: hand.modelled, STEPS)
    assert [float(row["seconds"]) for row in rows] == [20.0, 20.0, 60.0]
    assert [row["images_per_second"] for row in rows] == ["3.2", "", "0.8"]
    assert [row["share"] for row in rows] == ["0.5000", "0.7500", "1.0000"]
    assert [row["train_loss"] for row in rows] == ["0.5"] * 3


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
