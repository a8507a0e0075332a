"""Modules that a network has only when it is divided: conversions, summed layers, dropout."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear

from paceline.split.conversion import TERMS_TO_WHOLE, Conversion, Part
from paceline.split.shard_group import ShardGroup


class _Moved(Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, conversion: Conversion, group: ShardGroup) -> Tensor:
        ctx.conversion, ctx.group = conversion, group
        return conversion.forward(own, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.conversion.backward(gradients[0], ctx.group), None, None


class Converted(nn.Module):
    """Module that converts an activation between the processes of `group`."""

    def __init__(self, conversion: Conversion, group: ShardGroup) -> None:
        super().__init__()
        self._conversion = conversion
        self._group = group

    def forward(self, own: Tensor) -> Tensor:
        """Return the activation of this process in its new state."""
        return _Moved.apply(own, self._conversion, self._group)  # type: ignore[no-any-return]


class SummedLayer(nn.Module):
    """Linear layer or convolution whose inputs are divided: its outputs are summed, and whole.

    `layer` has this process's part of the weight [outputs, inputs / shards, ...], and the whole
    bias, which is added once.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, group: ShardGroup) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias
        self._product = linear if isinstance(layer, nn.Linear) else layer._conv_forward
        self._sum = Converted(TERMS_TO_WHOLE, group)
        self._ones = (1, 1) if isinstance(layer, nn.Conv2d) else ()

    def forward(self, own: Tensor) -> Tensor:
        """Map the own part of the inputs to all outputs."""
        outputs = self._sum(self._product(own, self.weight, None))
        return outputs if self.bias is None else outputs + self.bias.view(-1, *self._ones)


class PartOfDropout(nn.Module):
    """Dropout of a part: the own part of what `layer` would keep of the whole activation.

    The processes' random generators are in the same state: see ShardGroup.share_random_state.
    """

    def __init__(self, layer: nn.Module, dimension: int, group: ShardGroup) -> None:
        super().__init__()
        self._layer = layer
        self._part = Part(dimension)
        self._group = group

    def forward(self, own: Tensor) -> Tensor:
        """Drop the same elements of the own part as one process would of the whole."""
        if not self._layer.training:
            return own
        shape = list(own.shape)
        shape[self._part.dimension] *= self._group.shards
        kept = self._layer(torch.ones(shape, dtype=own.dtype, device=own.device))
        return own * self._part(kept, self._group)
