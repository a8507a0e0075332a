"""States of an activation in the processes of a group, and the moves from one to another.

torch's own differentiable collectives do not serve here: on gloo their reduce-scatter moves twice
the bytes (an all-reduce, of which a part is kept; seen with torch 2.15), none sums the gradient
alone, and none counts. DTensor divides no convolution by its channels.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.split.shard_group import ShardGroup
from paceline.timing.split_step import (
    NOTHING,
    ShardMessages,
    all_gathered,
    all_reduced,
    swapped,
)


class State(NamedTuple):
    """State of an activation.

    `dimension`: along which each process has its part; None: each has the whole. `adds_up`: the
    gradients that the processes compute are terms of a sum; else each has that of its values.
    """

    dimension: int | None
    adds_up: bool = False


WHOLE = State(None)
SHARED = State(None, adds_up=True)  # whole, and each process computes something else of it
BATCH = State(0)  # a part of the images


class AbstractMove(ABC):
    """A way to move a tensor."""

    @abstractmethod
    def __call__(self, own: Tensor, group: ShardGroup) -> Tensor:
        """Return what this process has after the move. All processes of the group call it."""

    @abstractmethod
    def messages(self, whole: int, shards: int) -> ShardMessages:
        """Return what is sent if the whole tensor has `whole` bytes."""


class Keep(AbstractMove):
    """Move nothing."""

    def __call__(self, own: Tensor, group: ShardGroup) -> Tensor:
        return own

    def messages(self, whole: int, shards: int) -> ShardMessages:
        return NOTHING


class Sum(AbstractMove):
    """Add up what the processes have: an all-reduce."""

    def __call__(self, own: Tensor, group: ShardGroup) -> Tensor:
        return group.sum(own)

    def messages(self, whole: int, shards: int) -> ShardMessages:
        return all_reduced(whole, shards)


@dataclass(frozen=True)
class Part(AbstractMove):
    """Keep the own part along `dimension` of what all have."""

    dimension: int

    def __call__(self, own: Tensor, group: ShardGroup) -> Tensor:
        return _cut(own, group, self.dimension)[group.shard].clone()

    def messages(self, whole: int, shards: int) -> ShardMessages:
        return NOTHING


@dataclass(frozen=True)
class Gather(AbstractMove):
    """Join the parts of all along `dimension`: an all-gather."""

    dimension: int

    def __call__(self, own: Tensor, group: ShardGroup) -> Tensor:
        return torch.cat(group.gather(own).unbind(), self.dimension)

    def messages(self, whole: int, shards: int) -> ShardMessages:
        return all_gathered(whole, shards)


@dataclass(frozen=True)
class SumPart(AbstractMove):
    """Add up the own part along `dimension` of what the processes have: a reduce-scatter."""

    dimension: int

    def __call__(self, own: Tensor, group: ShardGroup) -> Tensor:
        return group.swap(torch.stack(_cut(own, group, self.dimension))).sum(0)

    def messages(self, whole: int, shards: int) -> ShardMessages:
        return swapped(whole, shards)


@dataclass(frozen=True)
class Turn(AbstractMove):
    """Give away parts along `cut` for parts along `joined`: an all-to-all."""

    joined: int
    cut: int

    def __call__(self, own: Tensor, group: ShardGroup) -> Tensor:
        pieces = group.swap(torch.stack(_cut(own, group, self.cut)))
        return torch.cat(pieces.unbind(), self.joined)

    def messages(self, whole: int, shards: int) -> ShardMessages:
        return swapped(whole // shards, shards)


def _cut(whole: Tensor, group: ShardGroup, dimension: int) -> tuple[Tensor, ...]:
    """Cut a tensor into equal parts. Raises ValueError if they cannot be equal."""
    if whole.shape[dimension] % group.shards:
        shape = list(whole.shape)
        raise ValueError(f"{shape} cannot be cut along {dimension} into {group.shards} equal parts")
    return whole.chunk(group.shards, dimension)


class Conversion(NamedTuple):
    """Conversion of an activation: what forward does to it, and backward to its gradient."""

    forward: AbstractMove
    backward: AbstractMove


def conversion(have: State, want: State) -> Conversion:
    """Return the conversion from one state to another."""
    match have.dimension, want.dimension:
        case None, None:
            return Conversion(Keep(), Sum() if want.adds_up else Keep())
        case None, int(cut):
            return Conversion(Part(cut), Gather(cut))
        case int(joined), None:
            back = SumPart(joined) if want.adds_up else Part(joined)
            return Conversion(Gather(joined), back)
        case int(joined), int(cut):
            return Conversion(Turn(joined, cut), Turn(cut, joined))
    raise ValueError(f"no conversion from {have} to {want}")


TERMS_TO_WHOLE = Conversion(Sum(), Keep())  # of a layer whose inputs are divided
