"""The Trainer of a user's module, which answers by the run over all workers."""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pytorch_lightning import Trainer

from paceline.errors import SettingError
from paceline.run.lightning_contract import REFUSED

_INSIDE = ("lightning_fabric", "paceline", "pytorch_lightning", "torchmetrics")


class Told(NamedTuple):
    """Facts that a module is told of its run.

    `num_steps`: batches of all workers together, which are the steps of schedulers. `num_epochs`:
    passes over the training set, the last of which may be shorter. `num_workers`: number of
    workers. `datamodule`: the user's LightningDataModule, or None.
    """

    num_steps: int
    num_epochs: int
    num_workers: int
    datamodule: Any


class RunTrainer(Trainer):
    """Trainer that tells a module the lengths of the run, on every clock the same.

    `told`: set it before `fit`. `batches`: counts the batches of all workers so far, as far as this
    process knows. `by_ddp`: True if DDP takes the steps. Reading what would differ between clocks
    raises SettingError("model"), and so does setting an attribute; code of Lightning and Paceline
    reads and sets them unchanged.
    """

    told: Told | None = None
    batches: Callable[[], int] = staticmethod(lambda: 0)
    by_ddp: bool = False

    @property
    def global_step(self) -> int:
        """Batches of all workers before this one."""
        return self.batches()

    @property
    def in_epoch(self) -> bool:
        """True within an epoch of several workers."""
        epochs = self.fit_loop.epoch_progress.current
        several = self.told is not None and self.told.num_workers > 1
        return several and epochs.ready != epochs.completed

    def __setattr__(self, name: str, value: Any) -> None:
        outside = self.told is not None and not called_inside()
        if outside and name not in RunTrainer.__annotations__ and hasattr(self, name):
            message = f"it sets trainer.{name}, and the settings of a run are those of its point"
            raise SettingError("model", message)
        super().__setattr__(name, value)


def called_inside() -> bool:
    """Return True if the caller is called by code of Lightning or Paceline, and not a user's."""
    name = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
    return name.partition(".")[0] in _INSIDE


_ANSWERS: Mapping[str, Callable[[Told], Any]] = {
    "datamodule": lambda told: told.datamodule,
    "estimated_stepping_batches": lambda told: told.num_steps,
    "max_epochs": lambda told: told.num_epochs,
    "max_steps": lambda told: told.num_steps,
    "num_training_batches": lambda told: math.ceil(told.num_steps / told.num_epochs),
}


_OF_SETUP = {
    "num_training_batches": "in an epoch, batches of all workers are no measure of batch_idx; use a"
    " scheduler, or trainer.global_step and trainer.estimated_stepping_batches",
}


class _Answered:
    """Attribute of a RunTrainer that has another value for code of a user than for Lightning."""

    def __init__(self, name: str) -> None:
        self._name, self._inherited = name, getattr(Trainer, name, None)

    def __get__(self, trainer: RunTrainer | None, owner: type[RunTrainer]) -> Any:
        if trainer is None:
            return self
        name, told, inherited = self._name, trainer.told, self._inherited
        if told is not None and not called_inside():
            if name in _ANSWERS and not (name in _OF_SETUP and trainer.in_epoch):
                return _ANSWERS[name](told)
            if told.num_workers == 1 and name in ("num_devices", "num_nodes", "world_size"):
                return 1
            if name == "strategy" and (trainer.by_ddp or told.num_workers == 1):
                return inherited.__get__(trainer, owner)  # type: ignore[union-attr]
            why = REFUSED.get(name) or _OF_SETUP[name]
            raise SettingError("model", f"trainer.{name} has no meaning in a run: {why}")
        return trainer.__dict__[name] if inherited is None else inherited.__get__(trainer, owner)

    def __set__(self, trainer: RunTrainer, value: Any) -> None:
        trainer.__dict__[self._name] = value


for _name in (*_ANSWERS, *REFUSED):
    setattr(RunTrainer, _name, _Answered(_name))
