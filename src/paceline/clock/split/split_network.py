"""Part of a divided network in one process of a worker.

torch's own differentiable collectives are not used: on gloo their reduce-scatter moves twice the
bytes (an all-reduce of which a part is kept; seen with torch 2.15), none leaves values alone and
sums only their gradient, and none counts bytes. DTensor does not divide a convolution by its
channels.
"""
# pyright: basic

import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.autograd import Function
from torch.nn import Parameter
from torch.nn.functional import linear

from paceline.clock.split.network_plan import NetworkPlan, layer_of, tensors_into
from paceline.timing.split_plan import (
    BY_CHANNELS,
    BY_INPUTS,
    SUM_OF_TERMS,
    Conversion,
    Move,
    State,
    all_reduced,
    conversion,
)

_ADDED = "added_by_split"  # name of the module with all that is not one of the network's layers


@dataclass
class ShardGroup:
    """The `shards` processes of one worker, from the view of process `shard`.

    `group`: their process group; None for all processes. `seconds`: time spent in exchanges.
    `num_bytes`: bytes of activations and their gradients that this process has sent. It has
    received as many, since all processes exchange equally long tensors. The number is computed for
    a ring; measurements of gloo agree with it.
    """

    group: dist.ProcessGroup | None
    shard: int
    shards: int
    seconds: float = 0.0
    num_bytes: int = 0

    def gather(self, own: Tensor) -> Tensor:
        """Return the tensors `own` [...] of all processes [shards, ...]."""
        pieces = own.new_empty(self.shards, *own.shape)
        with self._timed():
            dist.all_gather_into_tensor(pieces.view(-1), own.reshape(-1), group=self.group)
        self.num_bytes += (self.shards - 1) * own.nbytes
        return pieces

    def swap(self, pieces: Tensor) -> Tensor:
        """Send pieces[i] to process i; return the pieces [shards, ...] received from all."""
        pieces = pieces.contiguous()
        received = torch.empty_like(pieces)
        with self._timed():
            dist.all_to_all_single(received, pieces, group=self.group)
        self.num_bytes += (self.shards - 1) * pieces[0].nbytes
        return received

    def sum(self, own: Tensor) -> Tensor:
        """Return the sum of the activations `own` over all processes."""
        total = own.clone(memory_format=torch.contiguous_format)
        with self._timed():
            dist.all_reduce(total, group=self.group)
        self.num_bytes += all_reduced(own.nbytes, self.shards).num_bytes
        return total

    def collect(self, own: Tensor) -> list[Tensor] | None:
        """Return the tensors of all processes in shard 0, None elsewhere, and count no bytes."""
        pieces = [torch.empty_like(own) for _ in range(self.shards)] if self.shard == 0 else None
        dist.gather(own, pieces, group=self.group, group_dst=0)
        return pieces

    def share_random_state(self, device: torch.device) -> None:
        """Give all processes the random state of shard 0, so that dropout keeps the same."""
        torch.set_rng_state(self._of_first(torch.get_rng_state()))
        if device.type == "cuda":
            torch.cuda.set_rng_state(self._of_first(torch.cuda.get_rng_state(device)), device)

    def _of_first(self, state: Tensor) -> Tensor:
        dist.broadcast(state, group=self.group, group_src=0)
        return state

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start


def split_network(network: nn.Module, plan: NetworkPlan, group: ShardGroup) -> nn.Module:
    """Return the part of `network`, which is not changed, that process `group.shard` trains.

    It maps the worker's images [N, C, H, W] to logits [N, classes], whole in every process, and its
    layers have their original names. N must be divisible by the shards if a layer is divided by
    images. All processes of the group call this, with equal weights and the same images; they adopt
    the random state of shard 0. A BatchNorm divided by channels is exact. Divided by images, it
    uses the statistics of this process's images, like a worker under data parallelism.
    """
    own = deepcopy(network)
    for name, way in plan.ways.items():
        if way in (BY_INPUTS, BY_CHANNELS):
            _keep_slices(own, name, plan, group)
        if way == BY_INPUTS:
            own.set_submodule(name, SummedLayer(own.get_submodule(name), group))
        if way == BY_CHANNELS:
            _count_channels(own.get_submodule(name), group.shards)
    graph, added = _divided_graph(plan, own, group)
    own.add_module(_ADDED, added)
    weights = list(own.parameters())
    group.share_random_state(weights[0].device if weights else torch.device("cpu"))
    computing = type(fx.GraphModule(own, graph)).forward  # names modules by their paths
    own.forward = MethodType(computing, own)
    return own


def _divided_graph(
    plan: NetworkPlan, own: nn.Module, group: ShardGroup
) -> tuple[fx.Graph, nn.ModuleList]:
    """Return the graph with conversions between operations, and the modules that it calls."""
    graph, added = deepcopy(plan.traced.graph), nn.ModuleList()
    gives: dict[fx.Node, State] = {}
    converted: dict[tuple[fx.Node, State], fx.Node] = {}

    def add(module: nn.Module) -> str:
        added.append(module)
        return f"{_ADDED}.{len(added) - 1}"

    for node, placed in zip(list(graph.nodes), plan.placed, strict=True):
        for given in tensors_into(node):
            if gives[given] == placed.wants:
                continue
            if (given, placed.wants) not in converted:
                name = add(Converted(conversion(gives[given], placed.wants), group))
                with graph.inserting_before(node):
                    converting = graph.create_node("call_module", name, (given,))
                converted[given, placed.wants] = converting
            node.replace_input_with(given, converted[given, placed.wants])
        gives[node] = placed.gives
        layer, dimension = layer_of(plan.traced, node), placed.gives.dimension
        if isinstance(layer, nn.Dropout | nn.Dropout2d) and dimension is not None:
            node.target = add(PartOfDropout(own.get_submodule(str(node.target)), dimension, group))
    return graph, added


@torch.no_grad()
def _keep_slices(network: nn.Module, name: str, plan: NetworkPlan, group: ShardGroup) -> None:
    layer = network.get_submodule(name)
    for key in layer.state_dict():
        dimension = plan.slices.get(f"{name}.{key}")
        if dimension is not None:
            whole = getattr(layer, key)
            own = whole.tensor_split(group.shards, dimension)[group.shard].clone()
            is_weight = isinstance(whole, Parameter)
            setattr(layer, key, Parameter(own, whole.requires_grad) if is_weight else own)


def _count_channels(layer: nn.Module, shards: int) -> None:
    """Adapt the number of channels of a layer of which only slices are kept."""
    match layer:
        case nn.Linear():
            layer.out_features //= shards
        case nn.Conv2d():
            layer.out_channels //= shards
            if layer.groups > 1:
                layer.groups //= shards
                layer.in_channels //= shards
        case nn.GroupNorm():
            layer.num_groups //= shards
            layer.num_channels //= shards
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            layer.num_features //= shards


def carry_out(move: Move, own: Tensor, group: ShardGroup) -> Tensor:
    """Return this process's result of a move of `own`; all processes of the group call this. Raises
    ValueError for a tensor that cannot be cut into equal parts.
    """
    if move.cut is None:
        if move.adds:
            return group.sum(own)
        return own if move.joined is None else torch.cat(group.gather(own).unbind(), move.joined)
    if own.shape[move.cut] % group.shards:
        equal = f"along {move.cut} into {group.shards} equal parts"
        raise ValueError(f"{list(own.shape)} cannot be cut {equal}")
    parts = own.chunk(group.shards, move.cut)
    if move.adds:
        return group.swap(torch.stack(parts)).sum(0)
    if move.joined is None:
        return parts[group.shard].clone()
    return torch.cat(group.swap(torch.stack(parts)).unbind(), move.joined)


class _Moved(Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, conversion: Conversion, group: ShardGroup) -> Tensor:
        ctx.conversion, ctx.group = conversion, group
        return carry_out(conversion.forward, own, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return carry_out(ctx.conversion.backward, gradients[0], ctx.group), None, None


class Converted(nn.Module):
    """Module that redistributes an activation among the processes of `group`, as `conversion` says
    (for example from parts along a dimension to the whole); backward does the same to its gradient.
    """

    def __init__(self, conversion: Conversion, group: ShardGroup) -> None:
        super().__init__()
        self._conversion = conversion
        self._group = group

    def forward(self, own: Tensor) -> Tensor:
        return _Moved.apply(own, self._conversion, self._group)  # type: ignore[no-any-return]


class SummedLayer(nn.Module):
    """Linear layer or convolution with divided inputs, whose outputs are summed. `layer` has this
    process's part of the weight [outputs, inputs / shards, ...], and the whole bias, added once.
    """

    def __init__(self, layer: Any, group: ShardGroup) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias
        self._product = linear if isinstance(layer, nn.Linear) else layer._conv_forward
        self._sum = Converted(Conversion(SUM_OF_TERMS, Move()), group)
        self._ones = (1, 1) if isinstance(layer, nn.Conv2d) else ()

    def forward(self, own: Tensor) -> Tensor:
        outputs = self._sum(self._product(own, self.weight, None))
        return outputs if self.bias is None else outputs + self.bias.view(-1, *self._ones)


class PartOfDropout(nn.Module):
    """Dropout of a part of an activation, as `layer` would drop the whole. All processes have the
    same random state, see ShardGroup.share_random_state.
    """

    def __init__(self, layer: nn.Module, dimension: int, group: ShardGroup) -> None:
        super().__init__()
        self._layer = layer
        self._dimension = dimension
        self._group = group

    def forward(self, own: Tensor) -> Tensor:
        """Drop what a single process would drop of this part of the whole activation."""
        if not self._layer.training:
            return own
        shape = list(own.shape)
        shape[self._dimension] *= self._group.shards
        kept = self._layer(torch.ones(shape, dtype=own.dtype, device=own.device))
        return own * kept.chunk(self._group.shards, self._dimension)[self._group.shard]
