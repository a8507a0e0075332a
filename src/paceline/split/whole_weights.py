"""Whole weights and statistics from those of the shards, and the reverse."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from paceline.split.shard_group import ShardGroup
from paceline.split.split_plan import SplitPlan

State = Mapping[str, Tensor]  # tensors of a network's state_dict


def slices_of(whole: State, plan: SplitPlan, shard: int) -> dict[str, Tensor]:
    """Return what shard `shard` has of a whole state: copies of slices, and the rest as it is."""
    return {name: _slice(name, tensor, plan, shard) for name, tensor in whole.items()}


def _slice(name: str, tensor: Tensor, plan: SplitPlan, shard: int) -> Tensor:
    if name not in plan.slices:
        return tensor
    return tensor.tensor_split(plan.shards, plan.slices[name])[shard].clone()


def gathered(parts: Sequence[State], plan: SplitPlan) -> dict[str, Tensor]:
    """Return the whole state of the states of all shards, in order.

    What has no slices is shard 0's: weights are equal in all; BatchNorm's statistics of a layer by
    images are those of shard 0's images, as under data parallelism they are those of worker 0's.
    """
    return {
        name: torch.cat([part[name] for part in parts], plan.slices[name])
        if name in plan.slices
        else tensor
        for name, tensor in parts[0].items()
    }


@torch.no_grad()
def gather_state(
    network: nn.Module, plan: SplitPlan, group: ShardGroup
) -> dict[str, Tensor] | None:
    """Return the whole state of a divided network in shard 0, and None elsewhere.

    All processes of the group call it. Its values are copies; its bytes are not counted.
    """
    own = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    return gather_tensors(own, plan, group)


@torch.no_grad()
def gather_tensors(
    own: State, plan: SplitPlan, group: ShardGroup, summed: Collection[str] = ()
) -> dict[str, Tensor] | None:
    """Return the whole tensors of which each process has `own`, in shard 0, and None elsewhere.

    All processes of the group call it. `summed`: names of those to be added up. Others without
    slices are shard 0's.
    """
    names = [name for name in own if name in plan.slices or name in summed]
    sent = [own[name] for name in names]
    if not sent:
        return dict(own) if group.shard == 0 else None
    vectors = group.collect(torch.cat([tensor.reshape(-1) for tensor in sent]))
    if vectors is None:
        return None
    parts = [{**own, **dict(zip(names, _views(sent, each), strict=True))} for each in vectors]
    totals = {name: torch.stack([part[name] for part in parts]).sum(0) for name in summed}
    return gathered(parts, plan) | totals


def load_state(network: nn.Module, whole: State, plan: SplitPlan, group: ShardGroup) -> None:
    """Put the own slices of a whole state into a divided network."""
    network.load_state_dict(slices_of(whole, plan, group.shard))


@torch.no_grad()
def sum_gradients(network: nn.Module, plan: SplitPlan, group: ShardGroup) -> None:
    """Sum the gradients of the parameters by images over the group, after backward.

    All processes of the group call it, in every step.
    """
    weights = [weight for name, weight in network.named_parameters() if name in plan.summed]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    if gradients:
        total = group.sum_gradient(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        for gradient, value in zip(gradients, _views(gradients, total), strict=True):
            gradient.copy_(value)


def _views(tensors: Sequence[Tensor], vector: Tensor) -> list[Tensor]:
    """Return the consecutive parts of a vector in the shapes of `tensors`."""
    parts = vector.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
