"""Messages in a step between the processes of a split worker (a worker whose network is divided
over several processes), and the moves of tensors that need these messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ShardMessages(NamedTuple):
    """An exchange among the processes of a worker, in which each of `num_senders` sends
    `num_messages`, one after the other, of `num_bytes` in total. `to_each`: True if each process
    sends to each other one; False if each sends to its neighbour in a ring, or if messages are to
    or from the first process only.
    """

    num_messages: int
    num_bytes: int
    num_senders: int
    to_each: bool = False


NOTHING = ShardMessages(0, 0, 0)


def all_reduced(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages of a ring that sums tensors of `num_bytes` over the processes (Patarasuk
    & Yuan 2009).
    """
    count = 2 * (shards - 1)
    return ShardMessages(count, count * num_bytes // shards, shards)


def all_gathered(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages by which all processes get a tensor of `num_bytes`, of which each process
    has a part.
    """
    return ShardMessages(shards - 1, (shards - 1) * (num_bytes // shards), shards)


def swapped(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages by which each process sends to each other process the piece of a tensor
    of `num_bytes` that the other one keeps.
    """
    return all_gathered(num_bytes, shards)._replace(to_each=True)


def with_first(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages, each of `num_bytes`, between each other process and the first."""
    return ShardMessages(shards - 1, (shards - 1) * num_bytes, 1)


class State(NamedTuple):
    """Division of an activation among the processes. `dimension`: dimension along which it is
    divided into parts, one for each process; None if each process has the whole. `adds_up`: True if
    the gradients of it that the processes compute must be added; False if each of these is
    complete.
    """

    dimension: int | None
    adds_up: bool = False


WHOLE = State(None)
SHARED = State(None, adds_up=True)  # whole, and each process computes something else from it
BATCH = State(0)  # a part of the images


class Move(NamedTuple):
    """A move of a tensor between the processes. `joined`: dimension along which the parts of all
    processes are joined; None if nothing is joined. `adds`: True if each process has a term of a
    sum, and the terms are added; else, with `joined` None, each process has the whole tensor.
    `cut`: dimension along which each process then keeps its part; None if each keeps the whole.
    """

    joined: int | None = None
    cut: int | None = None
    adds: bool = False

    def messages(self, whole: int, shards: int) -> ShardMessages:
        """Return the messages for a tensor of `whole` bytes."""
        if self.adds:  # an all-reduce, or a reduce-scatter
            return (all_reduced if self.cut is None else swapped)(whole, shards)
        if self.joined is None:
            return NOTHING
        if self.cut is None:
            return all_gathered(whole, shards)
        return swapped(whole // shards, shards)


SUM_OF_TERMS = Move(adds=True)  # of a layer whose inputs are divided


class Conversion(NamedTuple):
    """Moves between states: `forward` of an activation, and `backward` of its gradient."""

    forward: Move
    backward: Move


def conversion(have: State, want: State) -> Conversion:
    """Return the conversion between the state of a result and the state that an operation needs."""
    backward = Move(want.dimension, have.dimension, want.adds_up)
    return Conversion(Move(have.dimension, want.dimension), backward)


@dataclass(frozen=True)
class SplitStep:
    """Messages between the `shards` processes of a worker in a step. `activations`: exchanges of
    activations in forward, and of their gradients in backward. `element_size`: bytes of a weight.
    `summed`: number of weights of layers that are divided by images; all processes have these
    weights, and their gradients are summed. `sliced`: number of weights in one process's slices of
    the other divided layers. `repeated`: number of the remaining weights, whose gradients are equal
    in all processes. `statistics`: number of BatchNorm statistics in one process's slices.
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
        """Bytes of activations and of their gradients that all processes send."""
        return sum(each.num_senders * each.num_bytes for each in self.activations)

    @property
    def process_bytes(self) -> int:
        """Bytes that one process sends to the others, with gradients summed among them."""
        gradient = all_reduced(self.element_size * self.summed, self.shards)
        return sum(each.num_bytes for each in (*self.activations, gradient))

    @property
    def to_first(self) -> list[ShardMessages]:
        """Messages that bring a step's gradient and statistics to the first process."""
        return self._with_first(self.summed + self.sliced + self.statistics)

    @property
    def from_first(self) -> list[ShardMessages]:
        """Messages by which the first process sends weights, and whether a step follows."""
        return self._with_first(1 + self.summed + self.repeated + self.sliced)

    def _with_first(self, length: int) -> list[ShardMessages]:
        return [with_first(self.element_size * length, self.shards)] if length else []
