"""Exponential moving average of weights, by the samples of all workers together."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn


def decay_per_sample(decay: float, reference_batch_size: int) -> float:
    """Return d^(1/B), of a decay d over B images of all workers together.

    A moving average of weights keeps the share d^(n/B) of itself over n images, however many
    updates these were: schemes whose updates differ in size average over equally many images.
    """
    return decay ** (1 / reference_batch_size)


class MovingAverage:
    """Average a of weights w that change: a <- q a + (1 - q) w, where q = sample_decay^images.

    It begins with copies of `weights`. With a decay of 0 it is the weights.
    """

    def __init__(self, weights: Sequence[Tensor], sample_decay: float) -> None:
        self.weights = [weight.detach().clone() for weight in weights]
        self._decay = sample_decay

    def update(self, weights: Sequence[Tensor], images: int) -> None:
        """Take in weights that `images` images of all workers have changed since the last call."""
        get_ema_multi_avg_fn(self._decay**images)(self.weights, list(weights), 0)

    def fork(self) -> "MovingAverage":
        """Return an average that goes on from this one by itself."""
        return MovingAverage(self.weights, self._decay)


def scored_weights(weights: Tensor, average: MovingAverage | None) -> Tensor:
    """Return copies of the vector `weights` [n] and of its average, if any: [1 or 2, n]."""
    return torch.stack([weights, *(average.weights if average else ())])
