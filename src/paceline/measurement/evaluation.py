"""Scores of snapshots, computed when training has ended."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from paceline.cluster.snapshot import Snapshot, fill, statistics_of
from paceline.model.score import Score, score

Batches = Callable[[], Iterable]


class Evaluation:
    """Fills snapshots into `module` (images to logits) and scores them on `device`.

    `weights`: the module's parameters, in the order of a snapshot's vector.
    """

    def __init__(self, module: Any, weights: list, device: torch.device) -> None:
        self._module = module.to(device)
        self._weights = weights
        self._statistics = statistics_of(module)  # after `to`, which replaces buffers
        self._device = device
        self._num_images = 0

    def score(self, snapshot: Snapshot, batches: Batches) -> Score:
        """`batches()`: a fresh pass over (images, labels)."""
        fill(self._weights, snapshot.weights)
        fill(self._statistics, snapshot.statistics)
        num_classes = self._num_classes(batches)
        self._num_images = 0
        return score(self._module, self._in_dtype(batches()), num_classes, self._device)

    def at_chance(self, top1: float, batches: Batches) -> bool:
        """Whether the last score's `top1` is within three standard errors of guessing."""
        chance = 1 / self._num_classes(batches)
        error = math.sqrt(chance * (1 - chance) / self._num_images)
        return top1 <= chance + 3 * error

    def _num_classes(self, batches: Batches) -> int:
        images, _ = next(iter(batches()))
        one = images[:1].to(self._device, self._weights[0].dtype)
        with torch.no_grad():
            return self._module.eval()(one).shape[1]

    def _in_dtype(self, batches: Iterable) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in batches:
            self._num_images += len(labels)
            yield images.to(self._weights[0].dtype), labels
