"""Plan of how a real network is divided over processes of a worker; it starts no process."""
# pyright: basic

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from paceline.clock.split.traced import facts_of, trace
from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.model.network_size import Sharding
from paceline.timing.split_plan import (
    BY_CHANNELS,
    BY_IMAGES,
    BY_INPUTS,
    SplitPlan,
    SplitStep,
    plan_split,
)

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
    dtype. Raises SettingError("model.split"), ("model.shards"), ("batch_size") or ("model") if that
    is impossible.
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
