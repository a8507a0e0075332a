"""LARS, an optimizer with a learning rate for each tensor, for large batches.

You et al. 2017, arXiv:1708.03888, algorithm 1, with d the weight decay:
    v <- momentum v + rate * trust |w| / (|g| + d |w|) * (g + d w);   w <- w - v

Where a norm is 0 the ratio is 1. As in the authors' code, biases and weights of normalization,
which are the tensors of at most one dimension, have neither the ratio nor weight decay.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from paceline.settings import NotNegative, Positive, Share, checked_arguments


class LARS(Optimizer):
    """SGD with momentum and a rate for each tensor. `trust_coefficient`: trust above."""

    @checked_arguments("model.optimizer")
    def __init__(
        self,
        params: Any,
        lr: NotNegative,
        momentum: Share = 0.9,
        weight_decay: NotNegative = 0.0,
        trust_coefficient: Positive = 0.001,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, {**options, "trust_coefficient": trust_coefficient})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)
        return loss

    def _update(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        gradient, state = weight.grad, self.state[weight]
        assert gradient is not None
        if weight.ndim > 1:
            decay, norm = group["weight_decay"], weight.norm()
            scale = gradient.norm() + decay * norm
            ratio = group["trust_coefficient"] * norm / scale
            ratio = torch.where((norm > 0) & (scale > 0), ratio, 1.0)
            gradient = gradient.add(weight, alpha=decay).mul_(ratio)
        if not state:
            state["moving"] = torch.zeros_like(weight)
        state["moving"].mul_(group["momentum"]).add_(gradient, alpha=group["lr"])
        weight.sub_(state["moving"])
