"""Optimizers with a learning rate for each tensor, by the norms of its weights and of its gradient,
for large batches.

    LARS (You et al. 2017, arXiv:1708.03888, algorithm 1), with d the weight decay:
        v <- momentum v + rate * trust |w| / (|g| + d |w|) * (g + d w);   w <- w - v
    LAMB (You et al. 2019, arXiv:1904.00962, algorithm 2), with Adam's m and v, corrected for bias:
        r <- m / (sqrt(v) + eps) + d w;   w <- w - rate * |w| / |r| * r

Where a norm is 0 the ratio is 1. As in the authors' code, biases and weights of normalization,
which are the tensors of at most one dimension, have neither the ratio nor weight decay.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from paceline.settings import NotNegative, Positive, Share, checked_arguments


class _Layerwise(Optimizer):
    """Optimizer that updates one tensor after another."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, weight.grad, self.state[weight], group)
        return loss

    def _update(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        raise NotImplementedError


class LARS(_Layerwise):
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

    def _update(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        if weight.ndim > 1:
            decay, norm = group["weight_decay"], weight.norm()
            ratio = _ratio(norm, gradient.norm() + decay * norm, group["trust_coefficient"])
            gradient = gradient.add(weight, alpha=decay).mul_(ratio)
        if not state:
            state["moving"] = torch.zeros_like(weight)
        state["moving"].mul_(group["momentum"]).add_(gradient, alpha=group["lr"])
        weight.sub_(state["moving"])


class LAMB(_Layerwise):
    """Adam with a rate for each tensor."""

    @checked_arguments("model.optimizer")
    def __init__(
        self,
        params: Any,
        lr: NotNegative,
        betas: tuple[Share, Share] = (0.9, 0.999),
        eps: NotNegative = 1e-6,
        weight_decay: NotNegative = 0.0,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, options)

    def _update(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        if not state:
            zeros = torch.zeros_like(weight)
            state.update(step=0, mean=zeros, square=zeros.clone())
        state["step"] += 1
        first, second = group["betas"]
        mean = state["mean"].lerp_(gradient, 1 - first)
        square = state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        unbiased = (square / (1 - second ** state["step"])).sqrt_().add_(group["eps"])
        change = (mean / (1 - first ** state["step"])).div_(unbiased)
        if weight.ndim > 1:
            change.add_(weight, alpha=group["weight_decay"])
            change.mul_(_ratio(weight.norm(), change.norm()))
        weight.sub_(change, alpha=group["lr"])


def _ratio(norm: Tensor, of: Tensor, factor: float = 1.0) -> Tensor:
    return torch.where((norm > 0) & (of > 0), factor * norm / of, 1.0)
