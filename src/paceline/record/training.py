"""Settings `training.*` of a point: its budget of images, learning rate, optimizer, precision."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from omegaconf import OmegaConf
from pydantic import AfterValidator, Field

from paceline.errors import SettingError
from paceline.model.learning_rate import LearningRate, corrected_momentum
from paceline.record.target import Target
from paceline.settings import UNKEYED, Below1, Neutral, NotNegative, Positive, Whole, settings

if TYPE_CHECKING:
    from paceline.clock.run_spec import RunSpec

Precision = Literal["32-true", "64-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true"]
_PACKAGES = ("torch.optim", "paceline.model.layerwise")  # of optimizers with known options


def _not_subnormal(rate: float) -> float:
    if rate < sys.float_info.min:
        raise ValueError(f"should be at least {sys.float_info.min:.2g}")
    return rate


@settings("training")
class Training:
    """Training settings of a point.

    `epochs`: passes over the data by all workers together. `samples`: number of images of all
    workers together; if it is not None, `epochs` has no effect. `lr`, `momentum`, `weight_decay`:
    options of SGD. `rate`: "by_rule" if `lr` is used as set, "tuned" if the study's hyperparameter
    search chooses `lr` (and `momentum`), which are None until then. LearningRate documents how the
    rate changes with the number of images per update and with the progress of the run.
    `gradient_clip_val`: largest norm of an applied gradient, or with `gradient_clip_algorithm:
    value` the largest absolute value of its elements; None for no limit. `ema_decay`: factor by
    which the moving average of the weights decays in each `lr_reference_batch_size` images of all
    workers; the average is evaluated as well; None for no average. `initial_weights`: file with the
    weights at the beginning; None for random ones. `checkpoint_seconds`: real time between
    checkpoints; None for no checkpoints.
    """

    epochs: Positive
    samples: Positive | None
    lr: Annotated[Positive, AfterValidator(_not_subnormal)] | None
    rate: Literal["by_rule", "tuned"]
    momentum: Annotated[float, Field(strict=True, ge=0, le=0.999)] | None
    momentum_correction: Literal["none", "asynchrony"]
    weight_decay: NotNegative
    lr_rule: Literal["none", "linear", "square_root", "inverse_staleness"]
    lr_reference_batch_size: Whole
    warmup_epochs: NotNegative
    schedule: Literal["constant", "cosine", "steps", "poly"]
    milestones: list[Annotated[float, Field(strict=True, gt=0, lt=1)]]
    gamma: Annotated[float, Field(strict=True, gt=0, le=1)]
    poly_power: Annotated[Positive, Neutral(0.5)]
    gradient_clip_val: Positive | None
    gradient_clip_algorithm: Annotated[Literal["norm", "value"], Neutral("norm")]
    ema_decay: Annotated[Below1 | None, Neutral(None)]
    initial_weights: Annotated[str | None, Neutral(None)]
    precision: Precision
    checkpoint_seconds: Annotated[Positive | None, UNKEYED] = None

    def __post_init__(self) -> None:
        for name, value in (("lr", self.lr), ("momentum", self.momentum)):
            if value is None and self.rate != "tuned":
                raise SettingError(f"training.{name}", "a value is needed")
        if self.samples is None and self.warmup_epochs > self.epochs:
            message = f"{self.warmup_epochs}, but the run has {self.epochs} epochs"
            raise SettingError("training.warmup_epochs", message)
        if self.milestones != sorted(self.milestones):
            raise SettingError("training.milestones", f"should rise, not {self.milestones}")
        if self.initial_weights and not Path(self.initial_weights).expanduser().is_file():
            message = f"there is no file {self.initial_weights}"
            raise SettingError("training.initial_weights", message)
        if self.ema_decay is not None and self.precision in ("16-true", "bf16-true"):
            message = f"{self.precision} is too coarse for an average of weights; null is needed"
            raise SettingError("training.ema_decay", message)

    def applied_to(
        self, run: RunSpec, *, images_per_update: int, images_meanwhile: float
    ) -> RunSpec:
        """Return a run with the learning rate and the moving average of these settings."""
        from paceline.clock.snapshot import decay_per_sample  # torch takes seconds

        assert run.epoch_samples is not None
        assert run.num_steps is not None
        decay, reference = self.ema_decay, self.lr_reference_batch_size
        return replace(
            run,
            learning_rate=self.learning_rate(
                images_per_update=images_per_update,
                epoch=run.epoch_samples,
                samples=run.samples_at(run.num_steps),
                images_meanwhile=images_meanwhile,
            ),
            sample_decay=None if decay is None else decay_per_sample(decay, reference),
        )

    def learning_rate(
        self, *, images_per_update: int, epoch: int, samples: int, images_meanwhile: float = 0
    ) -> LearningRate:
        """Return the learning rate of a run.

        `epoch`: number of training images. `samples`: budget of the run [images].
        """
        return LearningRate(
            rule=self.lr_rule,
            update_batch_size=images_per_update,
            reference_batch_size=self.lr_reference_batch_size,
            warmup_samples=round(self.warmup_epochs * epoch),
            schedule=self.schedule,
            total_samples=samples,
            milestones=tuple(self.milestones),
            gamma=self.gamma,
            poly_power=self.poly_power,
            images_meanwhile=images_meanwhile,
        )

    def corrected(self, model: Target, staleness: float) -> Target:
        """Return the module with its momentum corrected for the mean `staleness` [updates]."""
        if self.momentum_correction == "none":
            return model
        optimizer = model.values["optimizer"]
        momentum = corrected_momentum(optimizer["momentum"], staleness)
        changed = {**optimizer, "momentum": momentum}
        return replace(model, values={**model.values, "optimizer": changed})

    def check(self, model: Target) -> None:
        """Raise SettingError for a model that cannot train, or whose momentum cannot be corrected
        because its optimizer has none below 1.
        """
        optimizer = model.values.get("optimizer", {"_target_": None})
        if not isinstance(optimizer, Mapping) or "_target_" not in optimizer:
            raise SettingError("model.optimizer", "a file of conf/model/optimizer is needed")
        _check_options(cast("Mapping[str, Any]", optimizer))
        if self.momentum_correction != "none" and self.momentum is not None:
            _check_momentum(model)


def _check_options(optimizer: Mapping[str, Any]) -> None:
    """Raise SettingError for an option that an optimizer of torch or Paceline does not have."""
    package, _, name = str(optimizer["_target_"]).rpartition(".")
    if package not in _PACKAGES or optimizer.keys() <= _own_options(package, name):
        return
    if (kind := getattr(import_module(package), name, None)) is None:  # torch takes seconds
        raise SettingError("model.optimizer._target_", f"{package} has no {name}")
    known = signature(kind).parameters
    for option in optimizer:
        if option not in known and option not in ("_target_", "_partial_"):
            message = f"{package}.{name} has no such option"
            raise SettingError(f"model.optimizer.{option}", message)


@cache
def _own_options(package: str, name: str) -> set[str]:
    """Return the options in Paceline's own file of an optimizer; none without a file."""
    file = files("paceline") / f"conf/model/optimizer/{name.lower()}.yaml"
    own: Any = OmegaConf.create(file.read_text()) if file.is_file() else {}
    return set(map(str, own)) if own.get("_target_") == f"{package}.{name}" else set()


def _check_momentum(model: Target) -> None:
    optimizer = model.values.get("optimizer", {})
    if "momentum" not in optimizer:
        message = "the model has no model.optimizer.momentum"
        raise SettingError("training.momentum_correction", message)
    momentum = optimizer["momentum"]
    number = isinstance(momentum, int | float) and not isinstance(momentum, bool)
    if not (number and 0 <= momentum < 1):
        message = f"a number at least 0 and below 1 is needed, not {momentum!r}"
        raise SettingError("model.optimizer.momentum", message)
