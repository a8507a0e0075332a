"""Messages between the processes of a split worker in a step, and the moves that need them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ShardMessages(NamedTuple):
    """An exchange among the processes of a worker.

    Each of `num_senders` sends `num_messages`, one after the other, of `num_bytes` together.
    `to_each`: each sends to each other; else to its neighbour in a ring, or all to or from the
    first.
    """

    num_messages: int
    num_bytes: int
    num_senders: int
    to_each: bool = False


NOTHING = ShardMessages(0, 0, 0)


def all_reduced(num_bytes: int, shards: int) -> ShardMessages:
    """Return what sums `num_bytes` in a ring (Patarasuk & Yuan 2009)."""
    count = 2 * (shards - 1)
    return ShardMessages(count, count * num_bytes // shards, shards)


def all_gathered(num_bytes: int, shards: int) -> ShardMessages:
    """Return what gives all processes `num_bytes`, of which each has a part."""
    return ShardMessages(shards - 1, (shards - 1) * (num_bytes // shards), shards)


def swapped(num_bytes: int, shards: int) -> ShardMessages:
    """Return what gives each process the others' pieces of the `num_bytes` that each has."""
    return all_gathered(num_bytes, shards)._replace(to_each=True)


def with_first(num_bytes: int, shards: int) -> ShardMessages:
    """Return what brings `num_bytes` of each other process to the first, or from it to them."""
    return ShardMessages(shards - 1, (shards - 1) * num_bytes, 1)


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


class Move(NamedTuple):
    """A move of a tensor between the processes, which is of one of six kinds.

    `joined`: dimension along which the parts of all are joined; None: each has the whole, or, if it
    `adds`, a term of it. `cut`: dimension along which each keeps its part; None: it keeps all.
    """

    joined: int | None = None
    cut: int | None = None
    adds: bool = False

    def messages(self, whole: int, shards: int) -> ShardMessages:
        """Return what is sent if the whole tensor has `whole` bytes."""
        if self.adds:  # an all-reduce, or a reduce-scatter
            return (all_reduced if self.cut is None else swapped)(whole, shards)
        if self.joined is None:
            return NOTHING
        if self.cut is None:
            return all_gathered(whole, shards)
        return swapped(whole // shards, shards)


SUM_OF_TERMS = Move(adds=True)  # of a layer whose inputs are divided


class Conversion(NamedTuple):
    """Conversion of an activation: what forward does to it, and backward to its gradient."""

    forward: Move
    backward: Move


def conversion(have: State, want: State) -> Conversion:
    """Return the conversion from the state of a result to that in which an operation wants it."""
    backward = Move(want.dimension, have.dimension, want.adds_up)
    return Conversion(Move(have.dimension, want.dimension), backward)


@dataclass(frozen=True)
class SplitStep:
    """Messages between the `shards` processes of a worker in a step.

    `activations`: exchanges of forward and backward. `element_size`: bytes of a weight.
    `summed`: number of weights by images, which all have; `sliced`: of those in a process's slices;
    `repeated`: of others, with equal gradients in all. `statistics`: of BatchNorm in its slices.
    """

    shards: int
    activations: Sequence[ShardMessages]
    element_size: int
    summed: int
    sliced: int
    repeated: int
    statistics: int = 0

    @property
    def num_weights(self) -> int:
        """Number of weights of the whole network."""
        return self.summed + self.shards * self.sliced + self.repeated

    @property
    def activation_bytes(self) -> int:
        """Bytes of activations and of their gradients that the processes send together."""
        return sum(each.num_senders * each.num_bytes for each in self.activations)

    @property
    def process_bytes(self) -> int:
        """Bytes that one process sends to the others, with gradients that are summed among them."""
        gradient = all_reduced(self.element_size * self.summed, self.shards)
        return sum(each.num_bytes for each in (*self.activations, gradient))

    @property
    def to_first(self) -> list[ShardMessages]:
        """Messages that bring a step's gradient, and the statistics, to the first process."""
        return self._with_first(self.summed + self.sliced + self.statistics)

    @property
    def from_first(self) -> list[ShardMessages]:
        """Messages that hand out weights, and tell whether a step follows."""
        return self._with_first(1 + self.summed + self.repeated + self.sliced)

    def _with_first(self, length: int) -> list[ShardMessages]:
        return [with_first(self.element_size * length, self.shards)] if length else []
