"""Check of a module's and its Trainer's options for strategies that replace the optimizer."""

from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import (
    GradientAccumulationScheduler,
    StochasticWeightAveraging,
    WeightAveraging,
)
from torch.optim import Optimizer

from paceline.clock.clipping import check_clipping
from paceline.clock.elementwise import is_elementwise
from paceline.clock.served_weights import SERVED_PRECISIONS
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme

_CHANGING = (StochasticWeightAveraging, GradientAccumulationScheduler, WeightAveraging)


def check_honoured(
    trainer: Trainer,
    optimizers: list[Optimizer],
    by: str,
    scheme: AbstractScheme,
    workers: int,
    *,
    again: bool,
) -> None:
    """Raise SettingError for an unsupported option of the module or its Trainer.

    `by`: name of the component that applies updates, for the message. `again`: the strategy has
    trained before.
    """
    if again:
        message = "it has trained, and its run has ended; a new one goes on from the weights"
        raise SettingError("strategy", message)
    if trainer.precision not in SERVED_PRECISIONS:
        known = ", ".join(SERVED_PRECISIONS)
        message = f"{trainer.precision} cannot be honoured by {by}; there are: {known}"
        raise SettingError("training.precision", message)
    if not trainer.lightning_module.automatic_optimization:
        raise SettingError("model", f"manual optimization cannot be driven by {by}")
    check_one_optimizer(optimizers, by)
    if trainer.accumulate_grad_batches != 1:
        message = f"each batch is a step to {by}; use a larger batch_size"
        raise SettingError("accumulate_grad_batches", message)
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, _CHANGING):
            name = type(callback).__name__
            raise SettingError("callbacks", f"{name} changes steps or weights, which {by} owns")
    check_clipping(trainer.gradient_clip_val, scheme, workers)
    groups = optimizers[0].param_groups
    dtypes = {weight.dtype for group in groups for weight in group["params"]}
    if len(dtypes) != 1:
        raise SettingError("model", f"weights of one dtype are needed, not of {len(dtypes)}")


def check_one_optimizer(optimizers: list[Optimizer], by: str) -> None:
    """Raise SettingError("model") for several optimizers, and one that mixes weights."""
    if len(optimizers) != 1 or not is_elementwise(optimizers[0]):
        names = ", ".join(type(optimizer).__name__ for optimizer in optimizers) or "none"
        message = f"{by} applies one optimizer that treats each weight by itself, not {names}"
        raise SettingError("model", message)
