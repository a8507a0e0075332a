"""Plan of how a real network is divided over processes of a worker, from facts about its operations
that are found by tracing it with shapes. It starts no process.
"""
# pyright: basic

import operator
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata
from torch.fx.proxy import TraceError
from torch.nn import functional

from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.model.network_size import Sharding
from paceline.timing.split_plan import (
    BY_CHANNELS,
    BY_IMAGES,
    BY_INPUTS,
    Network,
    Operation,
    SplitPlan,
    SplitStep,
    WeightedLayer,
    plan_split,
)

_IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
_ELEMENTWISE_LAYERS = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Hardswish, nn.Hardsigmoid),
    *(nn.Sigmoid, nn.Tanh, nn.Identity, nn.Dropout, nn.Dropout2d),
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


def trace(network: nn.Module, batch_size: int, image_shape: Sequence[int]) -> fx.GraphModule:
    """Trace a copy of a network in training mode, on the meta device, for images [batch_size,
    *image_shape]. Raises SettingError("model.split") for a network that torch.fx cannot trace, or
    whose layers share weights, and SettingError("model") if it cannot process such images.
    """
    once = {name for name, _ in network.named_parameters()}
    for name, _ in network.named_parameters(remove_duplicate=False):
        if name not in once:
            message = f"{name} is shared with another layer; it cannot be divided"
            raise SettingError("model.split", message)
    copied = deepcopy(network).to("meta").train()
    try:
        traced = fx.symbolic_trace(copied)
    except (TraceError, TypeError, AttributeError, NotImplementedError) as error:
        message = f"torch.fx cannot trace the network, so it cannot be divided: {error}"
        raise SettingError("model.split", message) from error
    _leave_values_in_place(traced)
    try:
        dtype = next((weight.dtype for weight in copied.parameters()), None)
        ShapeProp(traced).propagate(
            torch.empty(batch_size, *image_shape, device="meta", dtype=dtype)
        )
    except (AssertionError, RuntimeError, ValueError) as error:
        shape = "x".join(map(str, image_shape))
        raise SettingError("model", f"it cannot take {shape} images: {error}") from error
    return traced


def _leave_values_in_place(traced: fx.GraphModule) -> None:
    """Let later operations use the result of an operation that works in place, instead of its
    input. A conversion between them copies the value; changes in place would miss the copy.
    """
    nodes = list(traced.graph.nodes)
    for place, node in enumerate(nodes):
        if node.op == "call_module":
            overwrites = getattr(traced.get_submodule(str(node.target)), "inplace", False)
        else:
            overwrites = node.target in _IN_PLACE or node.kwargs.get("inplace")
        if overwrites:
            later = set(nodes[place + 1 :])
            node.args[0].replace_all_uses_with(node, later.__contains__)
        if node.op == "call_function" and node.target in _IN_PLACE:
            node.target = _IN_PLACE[node.target]


def facts_of(network: nn.Module, traced: fx.GraphModule, shards: int) -> Network:
    """Return the facts by which a traced network is divided over `shards` processes."""
    nodes = list(traced.graph.nodes)
    numbers = {node: number for number, node in enumerate(nodes)}
    weights = list(network.parameters())
    learning: set[fx.Node] = set()  # nodes that gradients reach
    found = []
    for node in nodes:
        layer = layer_of(traced, node)
        own = list(layer.parameters()) if layer is not None else []
        if node.op == "get_attr":
            own = [attrgetter(str(node.target))(traced)]
        if any(weight.requires_grad for weight in own) or learning & {*node.all_input_nodes}:
            learning.add(node)
        given = tensors_into(node)
        numbered = [numbers[each] for each in given]
        found.append(_operation(node, layer, given, numbered, node in learning, shards))
    size = weights[0].element_size() if weights else 0
    return Network(found, sum(weight.numel() for weight in weights), size)


def layer_of(traced: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    return traced.get_submodule(str(node.target)) if node.op == "call_module" else None


def tensors_into(node: fx.Node) -> list[fx.Node]:
    """Return the nodes whose results an operation takes, if these are tensors."""
    return [given for given in node.all_input_nodes if _is_tensor(given)]


def _operation(
    node: fx.Node,
    layer: nn.Module | None,
    given: Sequence[fx.Node],
    numbers: Sequence[int],
    learns: bool,
    shards: int,
) -> Operation:
    shapes = [_shape(each) for each in given]
    weighted, matrix, works_on = None, 0, None
    if isinstance(layer, nn.Linear | nn.Conv2d):
        weighted, matrix = _weighted(layer, shapes[0]), layer.weight.numel()
    elif _is_tensor(node) and node.op != "output":
        works_on = partial(_works_on_parts, node, layer, shapes, shards)
    weights = [] if layer is None else list(layer.parameters())
    statistics = [] if layer is None else [each for each in layer.buffers() if each.dim()]
    result = node.meta["tensor_meta"] if _is_tensor(node) else None
    return Operation(
        name=str(node.target) if node.op == "call_module" else node.name,
        takes=numbers,
        num_bytes=result.shape.numel() * result.dtype.itemsize if result else 0,
        learns=learns,
        works_on=works_on,
        layer=weighted,
        has_channels=bool(weights or statistics) or isinstance(layer, nn.GroupNorm),
        weights=sum(each.numel() for each in weights),
        matrix=matrix,
        statistics=sum(each.numel() for each in statistics),
    )


def _weighted(layer: nn.Linear | nn.Conv2d, shape: Sequence[int]) -> WeightedLayer:
    if isinstance(layer, nn.Linear):
        sizes = layer.in_features, layer.out_features
        return WeightedLayer(True, shape[0], *sizes, dimension=len(shape) - 1)
    sizes = layer.in_channels, layer.out_channels, layer.groups
    return WeightedLayer(False, shape[0], *sizes)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("tensor_meta"), TensorMetadata)


def _shape(node: fx.Node) -> Any:
    return node.meta["tensor_meta"].shape


def _works_on_parts(
    node: fx.Node,
    layer: nn.Module | None,
    shapes: Sequence[Sequence[int]],
    shards: int,
    dimension: int,
) -> bool:
    """Return True if parts of the inputs along `dimension` give that part of the output. `layer`:
    module that the node calls, if any. `shapes`: shapes of all its whole inputs. Unknown operations
    are assumed to need their whole inputs.
    """
    if len({shape[dimension : dimension + 1] for shape in map(tuple, shapes)}) > 1:
        return False  # broadcast along the dimension, or a concatenation along it
    if isinstance(layer, nn.Module):
        return _layer_works(layer, shapes[0], dimension, shards)
    return _function_works(node, shapes, dimension)


def _layer_works(layer: nn.Module, shape: Sequence[int], dimension: int, shards: int) -> bool:
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


def _function_works(node: fx.Node, shapes: Sequence[Sequence[int]], dimension: int) -> bool:
    name, rank = node.target, len(shapes[0])
    if name in _ELEMENTWISE_FUNCTIONS or name in _ELEMENTWISE_METHODS:
        return len({len(shape) for shape in shapes}) == 1
    if name in _POOL_FUNCTIONS:
        return dimension in (0, 1) and rank == 4
    if name in (torch.flatten, "flatten"):
        return dimension <= _argument(node, 1, "start_dim", 0) % rank
    if name in (torch.mean, "mean"):
        dimensions = _argument(node, 1, "dim", None)
        means = dimensions if isinstance(dimensions, Sequence) else [dimensions]
        return dimensions is not None and all(mean % rank > dimension for mean in means)
    return name in (torch.cat, torch.concat) and dimension != _argument(node, 1, "dim", 0) % rank


def _argument(node: fx.Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


Tensors = Mapping[str, Tensor]  # of a network's state_dict


@dataclass(frozen=True)
class NetworkPlan(SplitPlan):
    """Plan of how a real network is divided.

    `traced`: its operations, in the order of `placed`. `summed`: names of the parameters of layers
    that are divided by images; these parameters are equal in all shards, and their gradients are
    summed. `slices`: parameters and buffers of which each shard has a slice, and the dimension that
    is cut. All other parameters are whole in every shard, with equal gradients.
    """

    traced: fx.GraphModule
    summed: frozenset[str]
    slices: Mapping[str, int]

    def slices_of(self, whole: Tensors, shard: int) -> dict[str, Tensor]:
        """Return a shard's part of whole tensors: copies of slices, and the rest unchanged."""
        return {
            name: tensor.tensor_split(self.step.shards, self.slices[name])[shard].clone()
            if name in self.slices
            else tensor
            for name, tensor in whole.items()
        }

    def joined(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the whole tensors from those of all shards in order. Tensors without slices are
        shard 0's: weights are equal in all; the statistics of a BatchNorm divided by images are
        those of shard 0's images, like those of worker 0 under data parallelism.
        """
        return {
            name: torch.cat([part[name] for part in parts], self.slices[name])
            if name in self.slices
            else tensor
            for name, tensor in parts[0].items()
        }


def plan_network(
    network: nn.Module, split: str, shards: int, batch_size: int, image_shape: Sequence[int]
) -> NetworkPlan:
    """Plan how to divide a network, which is not changed, over `shards` processes. `batch_size`:
    images of the worker in a step, in all its processes. Bytes are those of the network's own
    dtype. Raises SettingError("model.split"), ("model.shards"), ("batch_size") or ("model").
    """
    traced = trace(network, batch_size, image_shape)
    plan = plan_split(facts_of(network, traced, shards), split, shards)
    summed, slices = set[str](), dict[str, int]()
    for name, way in plan.ways.items():
        layer = traced.get_submodule(name)
        if way == BY_IMAGES:
            summed |= {f"{name}.{key}" for key, _ in layer.named_parameters()}
        if way == BY_CHANNELS:
            state = layer.state_dict()
            slices |= {f"{name}.{key}": 0 for key, tensor in state.items() if tensor.dim()}
        if way == BY_INPUTS:
            slices[f"{name}.weight"] = 1
    return NetworkPlan(plan.placed, plan.ways, plan.step, traced, frozenset(summed), slices)


def modelled_split(
    module: nn.Module,
    sharding: Sharding,
    batch_size: int,
    image_shape: Sequence[int],
    dtype: torch.dtype,
) -> SplitStep:
    """Return the messages of a step for the module's network in `dtype`. `batch_size`: images of
    the worker. Raises SettingError like `plan_network` and `network_of`.
    """
    network = deepcopy(network_of(module)).to(dtype)
    return plan_network(network, sharding.split, sharding.shards, batch_size, image_shape).step


def network_of(module: nn.Module) -> nn.Module:
    """Return the network that is split. Raises SettingError("model.shards") if there is none."""
    if not isinstance(module, Classifier):
        name = type(module).__name__
        message = f"a Classifier's network can be split, not a {name}; 1 is needed"
        raise SettingError("model.shards", message)
    for name, _ in module.named_parameters():
        if not name.startswith("network."):
            raise SettingError("model.shards", f"{name} is outside of the network; 1 is needed")
    return module.network
