"""Scores snapshots of the weights when training has ended."""

from collections.abc import Iterable
from typing import Any

import torch

from paceline.engine.snapshot import Snapshot, fill, statistics_of
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

    def score(self, snapshot: Snapshot, batches: Iterable) -> Score:
        """Score `snapshot` on `batches`, pairs of images [N, C, H, W] and labels [N]."""
        fill(self._weights, snapshot.weights)
        fill(self._statistics, snapshot.statistics)
        dtype = self._weights[0].dtype
        converted = ((images.to(dtype), labels) for images, labels in batches)
        return score(self._module, converted, self._device)
