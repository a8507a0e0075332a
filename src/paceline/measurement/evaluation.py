"""Scores of snapshots, computed when training has ended."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from paceline.cluster.snapshot import Snapshot, fill
from paceline.model.score import Score, score


class Evaluation:
    """Fills snapshots into `module` and scores them on `device`.

    `weights`, `statistics`: the module's tensors, in the order of a snapshot's vectors.
    """

    def __init__(self, module: Any, weights: list, statistics: list, device: torch.device) -> None:
        self._module = module.to(device)
        self._weights = weights
        self._statistics = statistics
        self._device = device

    def score(self, snapshot: Snapshot, batches: Callable[[], Iterable]) -> Score:
        """`batches()`: a fresh pass over (images, labels)."""
        fill(self._weights, snapshot.weights)
        fill(self._statistics, snapshot.statistics)
        return score(self._module, self._in_dtype(batches()), self._device)

    def _in_dtype(self, batches: Iterable) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in batches:
            yield images.to(self._weights[0].dtype), labels
