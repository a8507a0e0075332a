"""Messages between the processes of a split worker, by the plan for its network."""

from collections.abc import Iterable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.model.network_size import Sharding
from paceline.split.split_plan import SplitPlan, plan_split
from paceline.timing.split_step import SplitStep


def modelled_split(
    module: nn.Module,
    sharding: Sharding,
    batch_size: int,
    image_shape: Sequence[int],
    dtype: torch.dtype,
) -> SplitStep:
    """Return the messages of a step by the plan for the module's network, in `dtype`.

    `batch_size`: images of the worker. Raises SettingError as `plan_split`, and for a module that
    is no Classifier.
    """
    network = network_of(module)
    typed = deepcopy(network).to(dtype)
    plan = plan_split(typed, sharding.split, sharding.shards, batch_size, image_shape)
    return step_of(plan, typed)


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


def step_of(plan: SplitPlan, network: nn.Module) -> SplitStep:
    """Return the messages of a step by a plan of the network."""
    weights = dict(network.named_parameters())
    buffers = [each for name, each in network.named_buffers() if name in plan.slices]
    sliced = [each for name, each in weights.items() if name in plan.slices]
    summed = [each for name, each in weights.items() if name in plan.summed]
    num_all, num_summed = _num_elements(weights.values()), _num_elements(summed)
    return SplitStep(
        shards=plan.shards,
        activations=plan.activations,
        element_size=next(iter(weights.values())).element_size(),
        summed=num_summed,
        sliced=_num_elements(sliced) // plan.shards,
        repeated=num_all - num_summed - _num_elements(sliced),
        statistics=_num_elements(buffers) // plan.shards,
    )


def _num_elements(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
