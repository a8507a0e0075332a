"""Checks that the optimizer of a user's module heeds the settings."""

import math

from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.errors import SettingError
from paceline.record.training import Training

_PLACES = {
    "lr": ("initial_lr", "lr", "max_lr"),  # of a scheduler's beginning, now, and of its peak
    "momentum": ("momentum",),
    "weight_decay": ("weight_decay",),
}


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
