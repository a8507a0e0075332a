"""Rehearsal of the evaluation, which could otherwise fail after hours of training."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from pytorch_lightning.core.hooks import DataHooks
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor

from paceline.clock.training_strategy import random_state, set_random_state
from paceline.errors import SettingError, first_line
from paceline.model.score import score
from paceline.run.placed_data import PointData

_IMAGES = 8


_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def check_batch_hooks(module: Any, setting: str) -> None:
    """Raise SettingError(`setting`) for a module with a hook of its own that changes batches.

    A Trainer calls none of a data module that it was not given, and none when no Trainer evaluates:
    networks would be trained, or scored, on other batches than its author sees.
    """
    for hook in _HOOKS:
        if is_overridden(hook, module, parent=DataHooks):
            message = f"{type(module).__name__}.{hook} would not be called for every batch"
            raise SettingError(setting, f"{message}: its place is in the data set or collate_fn")


def rehearse(module: Any, data: PointData) -> None:
    """Score a few images of each part of the data, and leave no trace.

    `module`: not trained yet, on the CPU. Raises SettingError("data") for a part without pairs of
    images and labels, and SettingError("model") for a module that does not map images to logits or
    changes batches by hooks.
    """
    check_batch_hooks(module, "model")
    before = random_state()
    parts = {"validation": (data.validation, data.curve), "test": (data.test,)}
    for part, passes in parts.items():
        for begin in passes:
            _rehearse(module, *_first_of(part, begin))
    set_random_state(before)


def _first_of(part: str, begin: Callable[[], Iterable[Any]]) -> tuple[Tensor, Tensor]:
    try:
        images, labels = next(iter(begin()))
        images, labels = images[:_IMAGES], labels[:_IMAGES]
        if not isinstance(images, Tensor) or not isinstance(labels, Tensor) or labels.ndim != 1:
            raise TypeError("not tensors, or labels that are no numbers of classes")
    except Exception as error:  # anybody's code may raise anything
        message = f"pairs (images, labels [N]) of the {part} set are needed: {first_line(error)}"
        raise SettingError("data", message) from error
    return images, labels


def _rehearse(module: Any, images: Tensor, labels: Tensor) -> None:
    given = images.to(next(module.parameters()).dtype)
    needed = "forward must map images [N, ...] to logits [N, classes]"
    try:
        with torch.no_grad():
            found = score(module, [(given, labels)], "cpu")
    except Exception as error:  # anybody's code may raise anything
        raise SettingError("model", f"{needed}: {first_line(error)}") from error
    if int(labels.max()) >= found.num_classes:
        message = f"{needed}: there is a label {int(labels.max())}, and {found.num_classes} logits"
        raise SettingError("model", message)
