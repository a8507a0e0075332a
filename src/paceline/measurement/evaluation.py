"""Scores snapshots of the weights when training has ended."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from paceline.clock.snapshot import Snapshot, fill, statistics_of
from paceline.model.score import Score, score


class Evaluation:
    """Loads snapshots into `module`, which maps images to logits, and scores them on `device`.

    `weights` are the module's parameters in the order of a snapshot's vector.
    """

    def __init__(self, module: Any, weights: list, device: torch.device) -> None:
        self._module = module.to(device)
        self._weights = weights
        self._statistics = statistics_of(module)  # after `to`, which replaces buffers
        self._device = device

    def scores(self, snapshot: Snapshot, batches: Callable[[], Iterable]) -> list[Score]:
        """Score the weights of `snapshot`, and then their moving average if there is one.

        `batches` returns pairs of images [N, C, H, W] and labels [N].
        """
        return [self._score(weights, snapshot, batches()) for weights in snapshot.weights]

    def _score(self, weights: torch.Tensor, snapshot: Snapshot, batches: Iterable) -> Score:
        fill(self._weights, weights)
        fill(self._statistics, snapshot.statistics)
        dtype = self._weights[0].dtype
        converted = ((images.to(dtype), labels) for images, labels in batches)
        return score(self._module, converted, self._device)
