"""Vectors of a network's weights and gradients, in the order in which servers share them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.clock.flat_optimizer import ELEMENTWISE, Segment, group_segments
from paceline.clock.schedules import LiveOptions
from paceline.clock.vector_spec import VectorSpec
from paceline.errors import SettingError
from paceline.exchange.shard import round_robin
from paceline.scheme.rule import AbstractScheme


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
    """Parameters of one dtype moved into one vector, and their gradients into another, in order.

    `weights`, `gradient` [num_weights]: vectors to use, such as those of a wire. If the parameters
    are on another device, their vectors are there too, and the values are copied to `weights` once.
    `gradients`: views of `gradient` by parameter.
    """

    def __init__(self, parameters: list[nn.Parameter], weights: Tensor, gradient: Tensor) -> None:
        device = parameters[0].device
        here = weights.device == gradient.device == device
        self.weights = weights if here else torch.empty_like(weights, device=device)
        self.gradient = gradient if here else torch.zeros_like(self.weights)
        self._parameters = parameters
        sizes = [parameter.numel() for parameter in parameters]
        parts = torch.split(self.gradient, sizes)
        self.gradients = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
        for parameter, part in zip(parameters, torch.split(self.weights, sizes), strict=True):
            view = part.view_as(parameter)
            view.copy_(parameter.detach())
            parameter.data = view
        if self.weights is not weights:
            weights.copy_(self.weights)

    def zero_gradient(self) -> None:
        zero_gradients(self.gradient, self._parameters, self.gradients)

    def gather_gradient(self) -> None:
        gather_gradients(self._parameters, self.gradients)

    def adopt(self, weights: Tensor) -> None:
        if weights is not self.weights:
            self.weights.copy_(weights)


def held_weights(
    optimizer: Optimizer, scheme: AbstractScheme, statistics: Sequence[Tensor], options: LiveOptions
) -> tuple[list[nn.Parameter], VectorSpec]:
    """Return the trained weights of the optimizer in the order of a run's vectors, and these
    vectors. The order is that of the optimizer or, if servers hold whole tensors, of the servers.
    `statistics`: BatchNorm statistics. Raises SettingError("scheme.servers") for more servers than
    whole tensors, and SettingError("scheme.sharding") for servers that would hold parts of tensors
    for an optimizer that may need them whole.
    """
    whole, groups = type(optimizer) not in ELEMENTWISE, group_segments(optimizer)
    if whole and scheme.servers > 1 and not scheme.own_weights and scheme.sharding == "bytes":
        name = type(optimizer).__name__
        message = f"{name} may compute with whole tensors, unlike torch's elementwise optimizers; "
        message += "round_robin or one server is needed"
        raise SettingError("scheme.sharding", message)
    order = [
        (weight, number)
        for number, group in enumerate(optimizer.param_groups)
        for weight in group["params"]
        if weight.requires_grad
    ]
    shares: list[int] = []
    if scheme.sharding == "round_robin":
        if scheme.servers > len(order):
            message = f"{scheme.servers} servers, and {len(order)} tensors to share by round_robin"
            raise SettingError("scheme.servers", message)
        parts = [[order[n] for n in part] for part in round_robin(len(order), scheme.servers)]
        order = [each for part in parts for each in part]
        shares = [sum(weight.numel() for weight, _ in part) for part in parts]
    segments, last = list[Segment](), -1  # consecutive weights of one group, or a whole tensor
    for weight, number in order:
        if whole or number != last:
            shape = [*weight.shape] if whole else []
            segments.append({**groups[number], "num_weights": 0, "shape": shape})
        segments[-1]["num_weights"] += weight.numel()
        last = number
    vectors = VectorSpec(
        segments=segments,
        num_statistics=sum(each.numel() for each in statistics),
        dtype=str(order[0][0].dtype).removeprefix("torch."),
        shares=shares,
        num_numbers=len(options.first),
    )
    return [weight for weight, _ in order], vectors
