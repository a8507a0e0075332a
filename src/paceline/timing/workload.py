"""Workload of a modelled cluster: the network whose message sizes and step time are used. It may be
larger than the network that is trained.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Annotated, NamedTuple

from paceline.errors import SettingError
from paceline.model.network_size import BYTES, Layer, NetworkSize, Sharding
from paceline.settings import UNKEYED, Count, Neutral, Whole, settings
from paceline.timing.split_plan import SplitStep, counted_network, plan_split

OWN = "own"  # the trained network itself
BUCKET_BYTES = 25 * 2**20  # DistributedDataParallel's default
BACKWARD_SHARE = 2 / 3  # of a step's compute; backward does two products for each of forward's


class Bucket(NamedTuple):
    """Part of the gradients reduced at once. `ready`: share of backward that completes it."""

    num_bytes: int
    ready: float


@settings("workload")
class AbstractWorkload(ABC):
    """Network that decides the bytes and the time of a step on a modelled cluster. Paced processes
    (whose step times are emulated) extend their messages to the bytes of this network. `own_bytes`:
    bytes of the trained network's weights or gradients.
    """

    name: str

    @property
    def sizes_of_tensors(self) -> Sequence[int]:
        """Numbers of weights of its tensors in order; none if they are the trained network's."""
        return ()

    @abstractmethod
    def weight_bytes(self, own_bytes: int) -> int:
        """Return the bytes of all its weights."""

    def message_bytes(self, num_bytes: int, own_bytes: int) -> int:
        """Return the bytes of a message with `num_bytes` of the trained network's `own_bytes`."""
        return round(num_bytes * self.weight_bytes(own_bytes) / own_bytes)

    @abstractmethod
    def of_size(
        self, num_bytes: int, num_statistics_bytes: int, tensors: Sequence[int] = ()
    ) -> "AbstractWorkload":
        """Return the workload of a run without training, whose vectors are short. The arguments
        describe the network that would be trained; SizedNetwork documents them.
        """

    @abstractmethod
    def statistics_bytes(self, num_bytes: int) -> int:
        """Return the bytes of statistics in a push; the trained network's are `num_bytes`."""

    @abstractmethod
    def buckets(self, own_bytes: int) -> list[Bucket]:
        """Divide the gradients of a step into buckets, in the order of backward."""

    @abstractmethod
    def split_step(self, sharding: Sharding, batch_size: int) -> SplitStep:
        """Return the messages inside a worker of several processes, for a step of `batch_size`.
        Raises SettingError for a network that cannot be divided, or whose layers are not known.
        """


@settings("workload")
class OwnNetwork(AbstractWorkload):
    """The trained network itself. Its layers are not known: gradients become ready evenly."""

    name: str = OWN

    def weight_bytes(self, own_bytes: int) -> int:
        return own_bytes

    def of_size(
        self, num_bytes: int, num_statistics_bytes: int, tensors: Sequence[int] = ()
    ) -> AbstractWorkload:
        return SizedNetwork(
            num_bytes=num_bytes, num_statistics_bytes=num_statistics_bytes, tensors=list(tensors)
        )

    def statistics_bytes(self, num_bytes: int) -> int:
        return num_bytes

    def split_step(self, sharding: Sharding, batch_size: int) -> SplitStep:
        message = f"the layers of {self.name} are not known; split workers need a counted network"
        raise SettingError("workload", message)

    def buckets(self, own_bytes: int) -> list[Bucket]:
        count = max(1, math.ceil(own_bytes / BUCKET_BYTES))
        return [Bucket(own_bytes // count, n / count) for n in range(1, count + 1)]


@settings("workload")
class SizedNetwork(OwnNetwork):
    """Network of which only sizes are known, such as the one of a run without training.
    `num_bytes`: bytes of its weights. `num_statistics_bytes`: bytes of its BatchNorm statistics.
    `tensors`: number of weights in each of its tensors, in order; empty if they are those of the
    trained network.
    """

    num_bytes: Whole = 1
    num_statistics_bytes: Count = 0
    tensors: Annotated[list[Whole], UNKEYED] = field(default_factory=list[Whole])

    @property
    def sizes_of_tensors(self) -> Sequence[int]:
        return self.tensors

    def statistics_bytes(self, num_bytes: int) -> int:
        return self.num_statistics_bytes

    def weight_bytes(self, own_bytes: int) -> int:
        return self.num_bytes

    def buckets(self, own_bytes: int) -> list[Bucket]:
        return super().buckets(self.num_bytes)


@settings("workload")
class CountedNetwork(AbstractWorkload):
    """Network that `paceline calibrate --count` has counted, for images of `image_shape` [C, H, W].
    BatchNorm statistics are not sent. `tensors`: numbers of weights of its tensors, in the order of
    its parameters. `kept`: numbers that backward keeps of an image; 0 if they were not counted.
    """

    image_shape: list[Whole]
    num_classes: Whole
    layers: list[Layer]
    tensors: Annotated[list[Whole], UNKEYED] = field(default_factory=list[Whole])
    kept: Annotated[Count, Neutral(0)] = 0

    def __post_init__(self) -> None:
        if not (self.size.weight_bytes and self.size.multiply_adds):
            message = f"{self.name} has no weights, or multiplies nothing"
            raise SettingError("workload.layers", message)

    @cached_property
    def size(self) -> NetworkSize:
        return NetworkSize(self.layers, self.tensors)

    @property
    def activations(self) -> int:
        """Numbers that backward keeps of an image, as counted, or about all layers' inputs."""
        return self.kept or sum(layer.activations for layer in self.layers)

    @property
    def sizes_of_tensors(self) -> Sequence[int]:
        """Numbers of weights of its tensors. Raises SettingError if the file does not list them."""
        if not self.tensors:
            message = "none are listed; write the file anew by paceline calibrate --count --write"
            raise SettingError("workload.tensors", message)
        return self.tensors

    def weight_bytes(self, own_bytes: int) -> int:
        return self._weight_bytes

    @cached_property
    def _weight_bytes(self) -> int:
        return self.size.weight_bytes

    def of_size(
        self, num_bytes: int, num_statistics_bytes: int, tensors: Sequence[int] = ()
    ) -> AbstractWorkload:
        return self

    def statistics_bytes(self, num_bytes: int) -> int:
        return 0

    def split_step(self, sharding: Sharding, batch_size: int) -> SplitStep:
        network = counted_network(self.layers, self.num_classes, batch_size)
        return plan_split(network, sharding.split, sharding.shards).step

    def buckets(self, own_bytes: int) -> list[Bucket]:
        """Fill buckets with the layers' gradients, from the last layer to the first. A bucket as
        large as DistributedDataParallel's is closed, and ready with its last gradient.
        """
        found, filled = list[Bucket](), 0
        shares = self.size.shares_of_backward()
        for layer, ready in zip(reversed(self.layers), reversed(shares), strict=True):
            filled += BYTES * layer.weights
            if filled >= BUCKET_BYTES:
                found.append(Bucket(filled, ready))
                filled = 0
        return [*found, Bucket(filled, 1.0)] if filled else found


def share_of_step(ready: float) -> float:
    """Return the share of a step's computing after which a share of its backward is done."""
    return 1 - BACKWARD_SHARE * (1 - ready)
