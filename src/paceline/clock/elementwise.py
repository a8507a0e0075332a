"""Trial of an optimizer: does it treat each weight by itself?"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from paceline.clock.flat_optimizer import make_optimizer

_SHAPES = ((2, 3), (4,))
_STEPS = 3


def is_elementwise(optimizer: Optimizer) -> bool:
    """Return True if tensors that are one vector become what they become apart.

    Only then can the weights be cut anywhere among servers. `optimizer` stays as it is.
    """
    options = {key: each for key, each in optimizer.param_groups[0].items() if key != "params"}
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(_STEPS + 1, 10, generator=generator, dtype=torch.float64)
    first, gradients = drawn[0], list(drawn[1:])
    apart, together = _shaped(first.clone()), [first.clone()]
    try:
        _train(type(optimizer), options, apart, [_shaped(each) for each in gradients])
        _train(type(optimizer), options, together, [[each] for each in gradients])
    except Exception:  # an optimizer raises what it likes for a vector
        return False
    found = torch.cat([each.flatten() for each in apart])
    return torch.allclose(found, together[0], rtol=1e-9, atol=1e-12)


def _shaped(vector: Tensor) -> list[Tensor]:
    parts = torch.split(vector, [math.prod(shape) for shape in _SHAPES])
    return [part.view(shape) for part, shape in zip(parts, _SHAPES, strict=True)]


def _train(
    kind: type[Optimizer],
    options: Mapping[str, Any],
    weights: list[Tensor],
    gradients: list[list[Tensor]],
) -> None:
    optimizer = make_optimizer(kind, [{**options, "params": weights}])
    for turn in gradients:
        for weight, gradient in zip(weights, turn, strict=True):
            weight.grad = gradient.clone()
        optimizer.step()
