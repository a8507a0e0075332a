"""SGD on weights that are one vector."""

import copy
from typing import Any, TypedDict

import torch
from torch import Tensor


class Segment(TypedDict):
    """Consecutive weights of one group of the module's optimizer, with SGD's options."""

    num_weights: int
    lr: float
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool


OPTIONS = ("lr", "momentum", "dampening", "weight_decay", "nesterov")


def group_segments(sgd: torch.optim.SGD) -> list[dict[str, Any]]:
    """A Segment for each group, in order."""
    return [
        {
            "num_weights": sum(weight.numel() for weight in group["params"]),
            **{name: group[name] for name in OPTIONS},
        }
        for group in sgd.param_groups
    ]


class FlatSGD:
    """torch.optim.SGD over `weights` [sum of the segments' sizes], which it updates in place."""

    def __init__(self, weights: Tensor, segments: list[Any]) -> None:
        self._segments = segments
        self._sizes = [segment["num_weights"] for segment in segments]
        self._parts = list(weights.split(self._sizes))
        groups = [
            {
                "params": [part],
                "initial_lr": segment["lr"],
                **{name: segment[name] for name in OPTIONS},
            }
            for part, segment in zip(self._parts, segments, strict=True)
        ]
        # fused: one pass over memory instead of three
        self._optimizer = torch.optim.SGD(groups, lr=0.0, fused=True)

    def step(self, gradient: Tensor, factor: float = 1.0) -> None:
        """`factor`: multiplies each segment's rate."""
        for weights, part in zip(self._parts, gradient.split(self._sizes), strict=True):
            weights.grad = part
        for group in self._optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        self._optimizer.step()

    def fork(self, weights: Tensor) -> "FlatSGD":
        """The same optimizer, momentum included, for other weights."""
        other = FlatSGD(weights, self._segments)
        other._optimizer.load_state_dict(copy.deepcopy(self._optimizer.state_dict()))
        return other
