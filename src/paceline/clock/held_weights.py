"""Order of a network's weights in the vectors of a run, by how servers share them."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.clock.live_options import LiveOptions
from paceline.clock.run_spec import VectorSpec
from paceline.clock.segment import Segment, group_segments
from paceline.errors import SettingError
from paceline.exchange.shard import round_robin
from paceline.scheme.rule import AbstractScheme


class HeldWeights(NamedTuple):
    """Weights in the order of a run's vectors.

    `segments`: consecutive weights of one group of the optimizer. `shares`: number of weights of
    each server, in order; none if servers share them equally.
    """

    weights: list[nn.Parameter]
    segments: list[Segment]
    shares: Sequence[int]

    def vectors(self, statistics: Sequence[Tensor], options: LiveOptions) -> VectorSpec:
        """Return the vectors of a run with these BatchNorm statistics and live options."""
        return VectorSpec(
            segments=self.segments,
            num_statistics=sum(each.numel() for each in statistics),
            dtype=str(self.weights[0].dtype).removeprefix("torch."),
            shares=self.shares,
            num_numbers=len(options.first),
        )


def held_weights(optimizer: Optimizer, scheme: AbstractScheme) -> HeldWeights:
    """Return the trained weights of the optimizer in its order, or whole tensors server by server.

    Raises SettingError("scheme.servers") for more servers than there are tensors to share whole.
    """
    groups = group_segments(optimizer)
    tensors = [
        (weight, number)
        for number, group in enumerate(optimizer.param_groups)
        for weight in group["params"]
        if weight.requires_grad
    ]
    if scheme.sharding == "bytes":
        filled = [group for group in groups if group["num_weights"]]
        return HeldWeights([weight for weight, _ in tensors], filled, ())
    if scheme.servers > len(tensors):
        message = f"{scheme.servers} servers, and {len(tensors)} tensors to share by round_robin"
        raise SettingError("scheme.servers", message)
    parts = [[tensors[n] for n in part] for part in round_robin(len(tensors), scheme.servers)]
    order = list(itertools.chain.from_iterable(parts))
    segments = [
        Segment({**groups[number], "num_weights": _size(list(run))})
        for number, run in itertools.groupby(order, key=lambda tensor: tensor[1])
    ]
    return HeldWeights([weight for weight, _ in order], segments, [_size(part) for part in parts])


def _size(tensors: Sequence[tuple[nn.Parameter, int]]) -> int:
    return sum(weight.numel() for weight, _ in tensors)
