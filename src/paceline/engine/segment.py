"""Parts of a run's weights that belong to one group of the module's optimizer."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

SGD = "torch.optim.sgd:SGD"


class Segment(TypedDict):
    """Consecutive weights of one group, in values that JSON keeps.

    `group`: its number. `optimizer`: its class, by module and name. `options`: of the group.
    """

    num_weights: int
    group: int
    optimizer: str
    options: Mapping[str, Any]


def plain_segment(num_weights: int) -> Segment:
    """Return weights from which each gradient is subtracted as it is."""
    weights = torch.zeros(1, requires_grad=True)
    (segment,) = group_segments(torch.optim.SGD([weights], lr=1.0))
    return {**segment, "num_weights": num_weights}


def group_segments(optimizer: Optimizer) -> list[Segment]:
    """Return a segment for each group, in order, of its weights that are trained."""
    kind = type(optimizer)
    return [
        {
            "num_weights": sum(each.numel() for each in group["params"] if each.requires_grad),
            "group": number,
            "optimizer": f"{kind.__module__}:{kind.__qualname__}",
            "options": {key: _value(each) for key, each in group.items() if key != "params"},
        }
        for number, group in enumerate(optimizer.param_groups)
    ]


def _value(option: Any) -> Any:
    if isinstance(option, Tensor):
        return option.item()
    return [*cast("Sequence[Any]", option)] if isinstance(option, tuple) else option
