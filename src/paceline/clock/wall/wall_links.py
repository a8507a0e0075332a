"""Links of a worker on real processes."""

from collections.abc import Sequence

from torch import Tensor

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.links import AbstractLinks, at_once
from paceline.clock.wall.mean_link import MeanLink
from paceline.clock.wall.own_weights import OwnWeights
from paceline.clock.wall.push_link import PushLink


class WallLinks(AbstractLinks):
    """Links of one worker, whose verbs block.

    `mean`, `push`, `own`: None if the scheme has no such link. `statistics`: floating-point buffers
    of the module, which are sent with each push.
    """

    def __init__(
        self,
        flat: FlatWeights,
        statistics: Sequence[Tensor],
        *,
        mean: MeanLink | None = None,
        push: PushLink | None = None,
        own: OwnWeights | None = None,
    ) -> None:
        self._flat, self._statistics = flat, statistics
        self._mean, self._push, self._own = mean, push, own

    @at_once
    def mean(self, value: Tensor) -> Tensor:
        assert self._mean is not None
        return self._mean.mean(value)

    @at_once
    def push(self, value: Tensor) -> Tensor:
        assert self._push is not None
        return self._push.push(value, self._statistics).to(self._flat.weights.device)

    @at_once
    def pair(self, partner: int) -> None:
        assert self._own is not None
        self._own.pair(partner)

    @at_once
    def apply(self, gradient: Tensor) -> Tensor:
        assert self._own is not None
        return self._own.apply(gradient)

    @at_once
    def adopt(self, weights: Tensor) -> None:
        holder = self._own or self._flat
        holder.adopt(weights)
