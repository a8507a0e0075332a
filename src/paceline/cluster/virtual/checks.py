"""What the virtual clock cannot honour, said before training starts."""

from typing import Any

import torch
from pytorch_lightning import Trainer
from torch.optim import Optimizer

from paceline.cluster.served_weights import SERVED_PRECISIONS
from paceline.errors import SettingError
from paceline.scheme.scheme import AbstractScheme, Adopt, Apply, Mean, Push


def check_scheme(scheme: Any, workers: int) -> None:
    """Raises SettingError("scheme") for what is no rule, or says what the clock does not know."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise SettingError("workers", f"a whole number of at least 1 is needed, not {workers!r}")
    if not isinstance(scheme, AbstractScheme):
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: no rule")
    step = scheme.step(torch.zeros(1))
    try:
        first: Any = next(step)
    except StopIteration as end:
        first = end.value
    step.close()
    if not isinstance(first, Mean | Push | Apply | Adopt):
        name = type(first).__name__
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: {name}")


def check_honoured(trainer: Trainer, optimizers: list[Optimizer]) -> None:
    """Raises SettingError for what the module or its Trainer asks for in vain."""
    module = trainer.lightning_module
    if not module.automatic_optimization:
        raise SettingError("model", "manual optimization cannot be driven by a virtual clock")
    if len(optimizers) != 1 or type(optimizers[0]) is not torch.optim.SGD:
        names = ", ".join(type(optimizer).__name__ for optimizer in optimizers) or "none"
        raise SettingError("model", f"a virtual clock applies one torch.optim.SGD, not {names}")
    if trainer.lr_scheduler_configs:
        message = "a virtual clock sets the rate by samples (training.schedule): no scheduler"
        raise SettingError("model", message)
    if trainer.precision not in SERVED_PRECISIONS:
        known = ", ".join(SERVED_PRECISIONS)
        message = f"{trainer.precision} cannot be honoured by a virtual clock; there are: {known}"
        raise SettingError("training.precision", message)
    if trainer.accumulate_grad_batches != 1:
        message = "each batch is a step on the virtual clock; use a larger batch_size"
        raise SettingError("accumulate_grad_batches", message)
    groups = optimizers[0].param_groups
    if any(group["maximize"] for group in groups):
        raise SettingError("model.optimizer.maximize", "a virtual clock minimises")
    dtypes = {weight.dtype for group in groups for weight in group["params"]}
    if len(dtypes) != 1:
        raise SettingError("model", f"weights of one dtype are needed, not of {len(dtypes)}")
