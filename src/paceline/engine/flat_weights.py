"""A network whose weights and gradients are views of one vector each."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def zero_gradients(
    vector: Tensor, weights: Sequence[nn.Parameter], views: Sequence[Tensor]
) -> None:
    """Backward adds to `views`, which make up `vector`; whatever dropped them is undone."""
    vector.zero_()
    for weight, view in zip(weights, views, strict=True):
        weight.grad = view


def gather_gradients(weights: Sequence[nn.Parameter], views: Sequence[Tensor]) -> None:
    """Into `views`, where backward put them: what a module's hook has put in their place."""
    for weight, view in zip(weights, views, strict=True):
        if weight.grad is None:
            view.zero_()
        elif weight.grad is not view:
            view.copy_(weight.grad.detach())


class FlatWeights:
    """Moves `parameters` into two vectors of one dtype, in order; values stay as they are.

    On the CPU the vectors are the wire's own, so that nothing is copied; on another device they are
    staged through the wire's.
    """

    def __init__(self, parameters: list[nn.Parameter], weights: Tensor, gradient: Tensor) -> None:
        self._wire_weights = weights
        self._wire_gradient = gradient
        device = parameters[0].device
        self.weights = weights if device.type == "cpu" else torch.empty_like(weights, device=device)
        self.gradient = torch.zeros_like(self.weights) if device.type != "cpu" else gradient
        self._parameters = parameters
        self._gradients: list[Tensor] = []
        start = 0
        for parameter in parameters:
            part = slice(start, start + parameter.numel())
            view = self.weights[part].view_as(parameter)
            view.copy_(parameter.detach())
            parameter.data = view
            self._gradients.append(self.gradient[part].view_as(parameter))
            start = part.stop
        self.stage_weights()

    def zero_gradient(self) -> None:
        zero_gradients(self.gradient, self._parameters, self._gradients)

    def gather_gradient(self) -> None:
        gather_gradients(self._parameters, self._gradients)

    def stage_weights(self) -> None:
        """Bring the weights to the wire."""
        if self.weights is not self._wire_weights:
            self._wire_weights.copy_(self.weights)

    def stage_gradient(self) -> None:
        """Bring the gradient to the wire."""
        if self.gradient is not self._wire_gradient:
            self._wire_gradient.copy_(self.gradient)

    def adopt(self, weights: Tensor) -> None:
        """Hold these weights: the wire's, or a snapshot."""
        if weights is not self.weights:
            self.weights.copy_(weights)
