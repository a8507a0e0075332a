"""A network whose weights and gradients are views of one vector each."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def zero_gradients(
    vector: Tensor, weights: Sequence[nn.Parameter], views: Sequence[Tensor]
) -> None:
    """Clear the gradients, and let backward add to `views`, which make up `vector`."""
    vector.zero_()
    for weight, view in zip(weights, views, strict=True):
        weight.grad = view


def gather_gradients(weights: Sequence[nn.Parameter], views: Sequence[Tensor]) -> None:
    """Copy into `views` whatever a hook of the module has put in the place of gradients."""
    for weight, view in zip(weights, views, strict=True):
        if weight.grad is None:
            view.zero_()
        elif weight.grad is not view:
            view.copy_(weight.grad.detach())


class FlatWeights:
    """Moves `parameters` into two vectors of one dtype, in order; values stay as they are.

    On the CPU the vectors are `weights` and `gradient`, those of a wire, so that nothing is copied;
    on another device they are vectors of their own, and `weights` gets a copy at first.
    """

    def __init__(self, parameters: list[nn.Parameter], weights: Tensor, gradient: Tensor) -> None:
        self._wire_weights = weights
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

    def adopt(self, weights: Tensor) -> None:
        """Hold these weights from now on."""
        if weights is not self.weights:
            self.weights.copy_(weights)
