"""What a run tells of itself while it runs."""

import csv

import pytest
import torch

from paceline.run.observer import Observer


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
