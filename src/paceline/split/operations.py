"""Operations that work on a part of an activation as they would on the whole."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

Shape = Sequence[int]

_ELEMENTWISE_LAYERS = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SiLU,
    nn.GELU,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.Tanh,
    nn.Identity,
    nn.Dropout,
    nn.Dropout2d,
)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_ELEMENTWISE_FUNCTIONS = {
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg),
    *(torch.add, torch.sub, torch.mul, torch.relu, torch.sigmoid, torch.tanh),
    *(functional.relu, functional.relu6, functional.leaky_relu, functional.elu, functional.silu),
    *(functional.gelu, functional.hardswish, functional.hardsigmoid),
}
_ELEMENTWISE_METHODS = {"add", "sub", "mul", "relu", "sigmoid", "tanh", "contiguous", "clone"}
_POOL_FUNCTIONS = {
    *(functional.max_pool2d, functional.avg_pool2d),
    *(functional.adaptive_avg_pool2d, functional.adaptive_max_pool2d),
}


def works_on_parts(
    node: fx.Node, layer: nn.Module | None, shapes: Sequence[Shape], dimension: int, shards: int
) -> bool:
    """Return True if parts of the inputs along `dimension` give that part of the output.

    `layer`: of a node that calls a module. `shapes`: of all tensors that come in, whole. What is
    not known here is taken to need its whole input.
    """
    if len({shape[dimension : dimension + 1] for shape in map(tuple, shapes)}) > 1:
        return False  # broadcast along the dimension, or a concatenation along it
    if isinstance(layer, nn.Module):
        return _layer_works(layer, shapes[0], dimension, shards)
    return _function_works(node, shapes, dimension)


def knows_channels(layer: nn.Module) -> bool:
    """Return True if a layer has something of each channel, so that its way matters."""
    return bool(layer.state_dict()) or isinstance(layer, nn.GroupNorm)


def _layer_works(layer: nn.Module, shape: Shape, dimension: int, shards: int) -> bool:
    match layer:
        case nn.GroupNorm():
            return dimension == 0 or (dimension == 1 and layer.num_groups % shards == 0)
        case nn.LayerNorm() | nn.LocalResponseNorm():
            return dimension == 0
        case nn.Flatten():
            return dimension <= layer.start_dim % len(shape)
    if isinstance(layer, (*_POOLS, *_BATCH_NORMS)):
        return dimension in (0, 1) and len(shape) > 1
    return isinstance(layer, _ELEMENTWISE_LAYERS)


def _function_works(node: fx.Node, shapes: Sequence[Shape], dimension: int) -> bool:
    name, rank = node.target, len(shapes[0])
    if name in _ELEMENTWISE_FUNCTIONS or name in _ELEMENTWISE_METHODS:
        return len({len(shape) for shape in shapes}) == 1
    if name in _POOL_FUNCTIONS:
        return dimension in (0, 1) and rank == 4
    if name in (torch.flatten, "flatten"):
        return dimension <= _argument(node, 1, "start_dim", 0) % rank
    if name in (torch.mean, "mean"):
        return _mean_works(node, rank, dimension)
    return name in (torch.cat, torch.concat) and dimension != _argument(node, 1, "dim", 0) % rank


def _mean_works(node: fx.Node, rank: int, dimension: int) -> bool:
    dimensions = _argument(node, 1, "dim", None)
    if dimensions is None:
        return False
    means = dimensions if isinstance(dimensions, Sequence) else [dimensions]
    return all(mean % rank > dimension for mean in means)


def _argument(node: fx.Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
