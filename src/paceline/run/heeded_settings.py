"""Check that anybody's module has taken the settings of training which its record will state."""

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
    """Refuses, before the first step, a module whose optimizer does not have what `training` says.

    A sweep over a rate that the module does not take would compare equal runs. An option that an
    optimizer does not have, as Adam has no momentum, is not compared; of several groups of weights
    one must have what is set. A corrected momentum is not compared. It is not for a run that goes
    on from a checkpoint, whose options are those of the middle.
    """

    def __init__(self, training: Training) -> None:
        corrected = training.momentum_correction != "none"
        self._set = {
            "lr": training.lr,
            "momentum": None if corrected else training.momentum,
            "weight_decay": training.weight_decay,
        }

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise SettingError("model") that names all settings which the optimizer does not have."""
        groups = trainer.optimizers[0].param_groups
        unheeded: list[str] = []
        for name, value in self._set.items():
            found = [float(each[key]) for each in groups for key in _PLACES[name] if key in each]
            if (
                value is not None
                and found
                and not any(math.isclose(value, each, rel_tol=1e-6) for each in found)
            ):
                unheeded.append(f"training.{name} is {value:g}, and its optimizer has {found[0]:g}")
        if unheeded:
            message = "; ".join(unheeded) + ": pass it to the module (as lr: ${training.lr}), or "
            message += "set what the module, or a scheduler of its own, makes of it"
            raise SettingError("model", message)
