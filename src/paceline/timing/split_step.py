"""Messages between the processes of a split worker in a step, and their bytes."""

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

    def to_first(self) -> list[ShardMessages]:
        """Return what brings a step's gradient, and the statistics, to the first process."""
        return self._with_first(self.summed + self.sliced + self.statistics)

    def from_first(self) -> list[ShardMessages]:
        """Return what hands out weights, and whether a step follows."""
        return self._with_first(1 + self.summed + self.repeated + self.sliced)

    def _with_first(self, length: int) -> list[ShardMessages]:
        return [with_first(self.element_size * length, self.shards)] if length else []
