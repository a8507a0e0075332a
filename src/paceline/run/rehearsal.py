"""Scores a few images by a user's module before the run that takes hours."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.clock.training_strategy import random_state, set_random_state
from paceline.errors import SettingError, refused
from paceline.model.score import Score, evaluation_mode, score
from paceline.run.placed_data import Pass, PlacedData

_NEEDED = "forward must map images [N, ...] to logits [N, classes]"


def rehearse_scores(module: Any, data: PlacedData) -> None:
    """Score a few images of each part of the data, without changing any random state.

    `module` must be on the CPU. Raises SettingError("data") for a part of the data that does not
    consist of pairs of images and labels, and SettingError("model") for a module that does not map
    images to logits.
    """
    before, kinds = random_state(), without_gpu(module)
    for part, begin in zip(("validation", "test"), data.rehearsed, strict=True):
        for images, labels in _pairs(part, begin):
            scored(module, images, labels)
    for layer, kind in kinds:
        layer.__class__ = kind
    set_random_state(before)


def _pairs(part: str, begin: Pass) -> Iterator[tuple[Tensor, Tensor]]:
    with refused("data", f"pairs (images, labels [N]) of the {part} set are needed"):
        batches = 0
        for images, labels in begin():
            batches += 1
            if (
                not isinstance(images, Tensor)
                or not isinstance(labels, Tensor)
                or labels.ndim != 1
                or labels.is_floating_point()
            ):
                raise TypeError("there are no tensors, or labels are not class numbers")
            yield images, labels
        if not batches:
            raise ValueError("it has no images")


def scored(module: Any, images: Tensor, labels: Tensor) -> Score:
    """Return the score of a batch. Raises SettingError for what cannot be scored."""
    given = images.to(next(module.parameters()).dtype)
    if not len(labels) or int(labels.min()) < 0:
        raise SettingError("data", f"labels must be class numbers from 0 on, not {labels.tolist()}")
    with refused("model", _NEEDED):
        with torch.no_grad(), evaluation_mode(module):
            logits = module(given)
        _check_logits(logits, images, labels)
        return score(module, [(given, labels)], "cpu")


def _check_logits(logits: Any, images: Tensor, labels: Tensor) -> None:
    shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
        raise SettingError("model", f"{_NEEDED}: it maps {len(images)} images to {shape}")
    if logits.shape[1] == 1:
        message = f"{_NEEDED}: one logit cannot tell two classes apart, return two"
        raise SettingError("model", message)
    if bool((logits >= 0).all()) and (logits.float().sum(1) - 1).abs().max() < 1e-3:
        message = f"{_NEEDED}: its rows add up to 1 like those of softmax, return the input of that"
        raise SettingError("model", message)
    if int(labels.max()) >= logits.shape[1]:
        message = f"there is a label {int(labels.max())}, and {logits.shape[1]} logits"
        raise SettingError("model", f"{_NEEDED}: {message}")


class _PlainNorm(_BatchNorm):
    def _check_input_dim(self, input: Tensor) -> None:
        pass


def without_gpu(module: nn.Module) -> Sequence[tuple[nn.Module, type]]:
    """Let a CPU compute layers of SyncBatchNorm; return these with their classes."""
    layers = [each for each in module.modules() if isinstance(each, nn.SyncBatchNorm)]
    kinds: list[tuple[nn.Module, type]] = [(each, type(each)) for each in layers]
    for each in layers:
        each.__class__ = _PlainNorm  # pyright: ignore[reportAttributeAccessIssue]
    return kinds
