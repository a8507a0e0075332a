"""Checks modules of users and other packages, before they train for hours."""

import math
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.core.hooks import DataHooks
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor

from paceline.clock.training_strategy import random_state, set_random_state
from paceline.errors import SettingError, first_line
from paceline.model.score import score
from paceline.record.training import Training
from paceline.run.placed_data import Pass, PlacedData

_IMAGES = 8
_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
_PLACES = {
    "lr": ("initial_lr", "lr", "max_lr"),  # of a scheduler's beginning, now, and of its peak
    "momentum": ("momentum",),
    "weight_decay": ("weight_decay",),
}


def check_batch_hooks(module: Any, setting: str) -> None:
    """Raise SettingError(`setting`) for a module that overrides a hook which changes batches.

    Such a hook would not be called for every batch, because the Trainer gets no data module, and
    does not evaluate.
    """
    for hook in _HOOKS:
        if is_overridden(hook, module, parent=DataHooks):
            message = f"{type(module).__name__}.{hook} would not be called for every batch"
            raise SettingError(setting, f"{message}; move it to the data set or to collate_fn")


def rehearse(module: Any, data: PlacedData) -> None:
    """Score a few images of each part of the data, without changing any random state.

    `module` must be on the CPU, and not trained yet. Raises SettingError("data") for a part of the
    data that does not consist of pairs of images and labels, and SettingError("model") for a module
    that does not map images to logits, or that changes batches by hooks.
    """
    check_batch_hooks(module, "model")
    before = random_state()
    for part, begin in (
        ("validation", data.validation),
        ("validation", data.curve),
        ("test", data.test),
    ):
        _rehearse(module, *_first_of(part, begin))
    set_random_state(before)


def _first_of(part: str, begin: Pass) -> tuple[Tensor, Tensor]:
    try:
        images, labels = next(iter(begin()))
        images, labels = images[:_IMAGES], labels[:_IMAGES]
        if not isinstance(images, Tensor) or not isinstance(labels, Tensor) or labels.ndim != 1:
            raise TypeError("there are no tensors, or labels are not class numbers")
    except Exception as error:  # code from outside may raise anything
        message = f"pairs (images, labels [N]) of the {part} set are needed: {first_line(error)}"
        raise SettingError("data", message) from error
    return images, labels


def _rehearse(module: Any, images: Tensor, labels: Tensor) -> None:
    given = images.to(next(module.parameters()).dtype)
    needed = "forward must map images [N, ...] to logits [N, classes]"
    try:
        with torch.no_grad():
            found = score(module, [(given, labels)], "cpu")
    except Exception as error:  # code from outside may raise anything
        raise SettingError("model", f"{needed}: {first_line(error)}") from error
    if int(labels.max()) >= found.num_classes:
        message = f"{needed}: there is a label {int(labels.max())}, and {found.num_classes} logits"
        raise SettingError("model", message)


class HeededSettings(Callback):
    """Callback that refuses a module whose optimizer ignores the settings `training.*`.

    Without this check, a sweep over a learning rate that the module ignores would compare equal
    runs. Options that the optimizer lacks (Adam has no momentum) are not checked, and a momentum
    that is corrected for staleness neither. If there are several groups of weights, one of them
    must have the set value. A resumed run must not use this callback, because a schedule may have
    changed the options of its optimizer since the beginning.
    """

    def __init__(self, training: Training) -> None:
        self._set = {"lr": training.lr, "weight_decay": training.weight_decay}
        if training.momentum_correction == "none":
            self._set["momentum"] = training.momentum

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise SettingError("model") that names all settings which the optimizer ignores."""
        groups = trainer.optimizers[0].param_groups
        unheeded: list[str] = []
        for name, keys in _PLACES.items():
            value = self._set.get(name)
            found = [float(each[key]) for each in groups for key in keys if key in each]
            if value is None or not found:
                continue
            if not any(math.isclose(value, each, rel_tol=1e-6) for each in found):
                unheeded.append(f"training.{name} is {value:g}, and its optimizer has {found[0]:g}")
        if unheeded:
            message = "; ".join(unheeded) + ": pass it to the module (as lr: ${training.lr}), or "
            message += "set what the module, or a scheduler of its own, makes of it"
            raise SettingError("model", message)
