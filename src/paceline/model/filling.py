"""Adds weights to a module that only make its messages longer, as those of a larger network.

These additional weights, the filling, are zero and have zero gradients, so that training gives the
same result. The gradients of the filling exist when backward begins. They are all-reduced, pushed
and averaged as all other gradients.
"""

from types import MethodType
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from paceline.errors import SettingError

FILLING = "filling"  # name of the parameter


def fill(module: LightningModule, num_bytes: int, weight_bytes: int) -> None:
    """Add weights to `module`, so that all its weights together have `num_bytes` bytes.

    `weight_bytes`: bytes of one weight. Raises SettingError("workload") if the module already has
    more than `num_bytes`.
    """
    own = weight_bytes * sum(weight.numel() for weight in module.parameters())
    missing = (num_bytes - own) // weight_bytes
    if missing < 0:
        message = f"messages of {num_bytes:,} bytes; the weights that are trained have {own:,}"
        raise SettingError("workload", message)
    if missing == 0:
        return
    module.register_parameter(FILLING, nn.Parameter(torch.zeros(missing)))
    module.training_step = MethodType(_filled_step, module)  # so that a copy calls its own


def _filled_step(self: LightningModule, *args: Any, **kwargs: Any) -> Any:
    loss = type(self).training_step(self, *args, **kwargs)
    if not isinstance(loss, Tensor):
        message = f"messages are filled up only if training_step returns a loss, not {loss!r}"
        raise SettingError("workload", message)
    return _Filled.apply(loss, getattr(self, FILLING))


class _Filled(torch.autograd.Function):
    """Returns the loss; its backward gives the filling a zero gradient without any arithmetic."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, filling: Tensor) -> Tensor:  # type: ignore[override]
        ctx.filling = filling
        return loss.view_as(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return gradient, ctx.filling.new_zeros(()).expand_as(ctx.filling)
