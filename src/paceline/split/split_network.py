"""The part of a network that one process of a worker's group has."""

from copy import deepcopy
from types import MethodType
from typing import Any

import torch
from torch import fx, nn
from torch.nn import Parameter

from paceline.split.conversion import Conversion
from paceline.split.converted import Converted, PartOfDropout, SummedLayer
from paceline.split.divided_graph import ADDED
from paceline.split.shard_group import ShardGroup
from paceline.split.split_plan import SplitPlan
from paceline.split.ways import BY_CHANNELS, BY_INPUTS


def split_network(network: nn.Module, plan: SplitPlan, group: ShardGroup) -> nn.Module:
    """Return the part of `network` that process `group.shard` trains; `network` is not changed.

    It maps the worker's images [N, C, H, W] to logits [N, classes], whole in every process, and its
    layers have the names of the original. N is divisible by the shards where a layer is by images.
    All processes of the group call it, with equal weights and the same images; their random
    generators take the state of shard 0's.

    BatchNorm by channels is exact. By images its statistics are those of the part of the images in
    this process, as they are of the worker's own under data parallelism.
    """
    own = deepcopy(network)
    for name, way in plan.uses.items():
        if way == BY_INPUTS:
            _keep_slices(own, name, plan, group)
            own.set_submodule(name, SummedLayer(_layer(own, name), group))
        if way == BY_CHANNELS:
            _keep_slices(own, name, plan, group)
            _count_channels(_layer(own, name), group.shards)
    own.add_module(ADDED, nn.ModuleList(_added(own, what, group) for what in plan.added))
    weights = list(own.parameters())
    group.share_random_state(weights[0].device if weights else torch.device("cpu"))
    computing = type(fx.GraphModule(own, plan.graph)).forward  # names modules by their paths
    own.forward = MethodType(computing, own)
    return own


def _layer(network: nn.Module, name: str) -> Any:
    return network.get_submodule(name)


@torch.no_grad()
def _keep_slices(network: nn.Module, name: str, plan: SplitPlan, group: ShardGroup) -> None:
    layer = _layer(network, name)
    for key in layer.state_dict():
        dimension = plan.slices.get(f"{name}.{key}")
        if dimension is not None:
            whole = getattr(layer, key)
            own = whole.tensor_split(group.shards, dimension)[group.shard].clone()
            is_weight = isinstance(whole, Parameter)
            setattr(layer, key, Parameter(own, whole.requires_grad) if is_weight else own)


def _count_channels(layer: nn.Module, shards: int) -> None:
    """Tell a layer whose slices are kept how many channels it has."""
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


def _added(network: nn.Module, what: Conversion | tuple[str, int], group: ShardGroup) -> nn.Module:
    if isinstance(what, Conversion):
        return Converted(what, group)
    name, dimension = what
    return PartOfDropout(_layer(network, name), dimension, group)
