"""Refuses more workers than the memory of a GPU holds, before they train."""

from copy import deepcopy
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch.optim import Optimizer

from paceline.clock.training_strategy import random_state, set_random_state
from paceline.errors import SettingError
from paceline.record.point import Point

_SIGN = "out of memory"


def require_memory(module: LightningModule, batch: Any, device: torch.device, point: Point) -> None:
    """Let a copy of `module` take a step on the GPU, while the other workers do the same.

    What a step needs stays reserved for this process until it trains. Random numbers go on as they
    were. Only steps in 32 bits are tried. Raises
    SettingError("cluster.workers_per_accelerator") if they do not fit.
    """
    if point.training.precision != "32-true":
        return
    before = random_state()
    try:
        copied = deepcopy(module).to(device)
        inputs = [part.to(device) for part in batch]
        optimizer: Any = copied.configure_optimizers()
        copied.training_step(tuple(inputs), 0).backward()  # pyright: ignore
        if isinstance(optimizer, Optimizer):
            optimizer.step()
    except Exception as error:  # code from outside may raise anything
        if _SIGN not in str(error):
            return  # training says so
        each = point.cluster.workers_per_accelerator
        message = f"the memory of a GPU does not hold {each} workers of {point.batch_size} images "
        message += "a step; fewer, or a smaller batch_size, are needed"
        raise SettingError("cluster.workers_per_accelerator", message) from error
    finally:
        set_random_state(before)
