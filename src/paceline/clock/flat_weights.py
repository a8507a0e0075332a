"""A network whose weights and gradients are views of one vector each."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def zero_gradients(
    vector: Tensor, weights: Sequence[nn.Parameter], views: Sequence[Tensor]
) -> None:
    """Fill `vector` with zeros and make its `views` the weights' gradients."""
    vector.zero_()
    for weight, view in zip(weights, views, strict=True):
        weight.grad = view


def gather_gradients(weights: Sequence[nn.Parameter], views: Sequence[Tensor]) -> None:
    """Copy gradients into `views` if a hook of the module has replaced these; None becomes 0."""
    for weight, view in zip(weights, views, strict=True):
        if weight.grad is None:
            view.zero_()
        elif weight.grad is not view:
            view.copy_(weight.grad.detach())


class FlatWeights:
    """Parameters moved into one vector, and their gradients into another, in order.

    Values stay as they are; all parameters have one dtype. `weights`, `gradient` [num_weights]:
    vectors to use on the CPU, for example those of a wire. If the parameters are on another device,
    there are vectors of their own on it, and the values are copied to `weights` once. `gradients`:
    of each parameter, in `gradient`.
    """

    def __init__(self, parameters: list[nn.Parameter], weights: Tensor, gradient: Tensor) -> None:
        device = parameters[0].device
        self.weights = weights if device.type == "cpu" else torch.empty_like(weights, device=device)
        self.gradient = torch.zeros_like(self.weights) if device.type != "cpu" else gradient
        self._parameters = parameters
        self.gradients: list[Tensor] = []
        start = 0
        for parameter in parameters:
            part = slice(start, start + parameter.numel())
            view = self.weights[part].view_as(parameter)
            view.copy_(parameter.detach())
            parameter.data = view
            self.gradients.append(self.gradient[part].view_as(parameter))
            start = part.stop
        if self.weights is not weights:
            weights.copy_(self.weights)

    def zero_gradient(self) -> None:
        zero_gradients(self.gradient, self._parameters, self.gradients)

    def gather_gradient(self) -> None:
        gather_gradients(self._parameters, self.gradients)

    def adopt(self, weights: Tensor) -> None:
        """Copy `weights` to the parameters."""
        if weights is not self.weights:
            self.weights.copy_(weights)
