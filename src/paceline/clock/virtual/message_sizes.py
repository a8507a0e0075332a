"""Sizes of the messages of a run on a modelled cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from paceline.clock.run_spec import RunSpec
from paceline.exchange.shard import round_robin, shard_bounds
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile
from paceline.timing.workload import AbstractWorkload, Bucket, OwnNetwork


@dataclass(frozen=True)
class VectorSizes:
    """Sizes of the vectors of a run. `shards`: numbers of weights of the servers. `tensors`: those
    of the tensors of the network; none if they are unknown. `item_bytes`: bytes of a number.
    `statistics`: number of BatchNorm values.
    """

    num_weights: int
    shards: Sequence[int]
    item_bytes: int = 4
    statistics: int = 0
    tensors: Sequence[int] = ()


class MessageSizes:
    """Bytes of all messages of a run: those of the workload, not of the trained network, whose
    vectors are `sizes`. `weights`: of all weights or gradients. `statistics`: of a worker's
    BatchNorm statistics. `shards`: of the weights of each server. `tensors`: number of tensors of
    which each server has at least a part; 0 if a tensor takes it no time. `buckets`: parts of a
    step's gradients in the order in which they are reduced.
    """

    def __init__(
        self, scheme: AbstractScheme, run: RunSpec, profile: ClusterProfile, sizes: VectorSizes
    ) -> None:
        workload = run.workload or OwnNetwork()
        own_bytes, self.item_bytes = sizes.num_weights * sizes.item_bytes, sizes.item_bytes
        self.weights = workload.message_bytes(own_bytes, own_bytes)
        self.statistics = workload.statistics_bytes(sizes.statistics * sizes.item_bytes)
        overlaps = profile.overlaps(run.num_workers) and run.split_step is None
        self.buckets: Sequence[Bucket] = [Bucket(self.weights, 1.0)]
        if overlaps:
            self.buckets = workload.buckets(own_bytes)
        self.shards = self._shards(scheme, workload, sizes)
        self.tensors = [0] * scheme.servers
        if scheme.servers and profile.server_tensor_seconds:
            self.tensors = tensors_of_servers(
                workload.sizes_of_tensors or sizes.tensors, scheme.servers, scheme.sharding
            )

    def _shards(
        self, scheme: AbstractScheme, workload: AbstractWorkload, sizes: VectorSizes
    ) -> list[int]:
        """Whole tensors are those of the workload, where it lists them."""
        tensors = workload.sizes_of_tensors if scheme.sharding == "round_robin" else ()
        if not tensors:
            own = [sizes.item_bytes * each for each in (sizes.num_weights, *sizes.shards)]
            return [workload.message_bytes(each, own[0]) for each in own[1:]]
        parts = round_robin(len(tensors), scheme.servers)
        return [self.weights * sum(tensors[n] for n in part) // sum(tensors) for part in parts]


def tensors_of_servers(sizes: Sequence[int], servers: int, sharding: str) -> list[int]:
    """Count the tensors of which each server has at least a part; `sizes`: their weights."""
    if sharding == "round_robin":
        return [len(part) for part in round_robin(len(sizes), servers)]
    ends, bounds = [*accumulate(sizes)], shard_bounds(sum(sizes), servers)
    return [1 + sum(first < end < last for end in ends) for first, last in bounds]
