"""Parts that all processes of one virtual clock share: workers, vectors, the modelled cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Size, Tensor

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.kernel import Buses, Cores, Kernel
from paceline.clock.virtual.virtual_network import VirtualNetwork
from paceline.clock.virtual.virtual_split import VirtualSplit
from paceline.clock.virtual.virtual_worker import BufferPool, VirtualWorker
from paceline.exchange.shard import round_robin, shard_bounds
from paceline.scheme.rule import AbstractScheme, Sharding
from paceline.timing.profile import ClusterProfile, messages_at_once
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import AbstractWorkload, Bucket, OwnNetwork

_TIMELINE_WORKERS = 16  # no figure shows more rows


@dataclass(frozen=True)
class MessageSizes:
    """Sizes of all messages of a run: those of the workload, not of the trained network.
    `own_bytes`: bytes of the trained network's weights. `overlap`: False if gradients are reduced
    as a whole after backward. `own_tensors`: numbers of weights of the trained network's tensors.
    """

    workload: AbstractWorkload
    own_bytes: int
    overlap: bool
    own_tensors: Sequence[int]

    def weights(self, num_bytes: int) -> int:
        """Return the bytes of a message with `num_bytes` of the trained network's weights."""
        return self.workload.message_bytes(num_bytes, self.own_bytes)

    def shards(self, shard_bytes: Sequence[int], sharding: Sharding) -> list[int]:
        """Return the bytes of a message with the weights of each server. `shard_bytes`: bytes of
        these in the trained network. Whole tensors are those of the workload, where it lists them.
        """
        tensors = self.workload.sizes_of_tensors if sharding == "round_robin" else ()
        if not tensors:
            return [self.weights(num_bytes) for num_bytes in shard_bytes]
        total, parts = self.weights(self.own_bytes), round_robin(len(tensors), len(shard_bytes))
        return [total * sum(tensors[n] for n in part) // sum(tensors) for part in parts]

    def tensors(self, servers: int, sharding: Sharding) -> list[int]:
        """Count the tensors of which each server has at least a part."""
        sizes = self.workload.sizes_of_tensors or self.own_tensors
        if sharding == "round_robin":
            return [len(part) for part in round_robin(len(sizes), servers)]
        ends, bounds = [*accumulate(sizes)], shard_bounds(sum(sizes), servers)
        return [1 + sum(first < end < last for end in ends) for first, last in bounds]

    def statistics(self, worker: VirtualWorker) -> int:
        """Return the bytes of a worker's BatchNorm statistics."""
        return self.workload.statistics_bytes(worker.statistics.vector.nbytes)

    def buckets(self) -> Sequence[Bucket]:
        """Return the parts of a step's gradients in the order in which they are reduced."""
        if not self.overlap:
            return [Bucket(self.weights(self.own_bytes), 1.0)]
        return self.workload.buckets(self.own_bytes)


class ClockParts:
    """Workers, links between nodes, cores and buffers of one virtual clock.

    `weights`: weights at the start, as one vector. `statistics`: floating-point buffers of the
    module, as one vector. `counters`: its other buffers. `shapes`: those of the tensors in
    `weights`, in order; none if they are unknown. `split`: processes of split workers; None for
    whole ones. `profile`: cluster of the processes that exchange gradients, which are the first
    ones of split workers.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        *,
        profile: ClusterProfile,
        step_times: StepTimes,
        weights: Tensor,
        statistics: Tensor,
        counters: Sequence[Tensor] = (),
        shapes: Sequence[Size] = (),
    ) -> None:
        self.scheme, self.run, self.step_times = scheme, run, step_times
        self.kernel, self.pool = Kernel(), BufferPool(weights)
        self.cores = Cores(self.kernel, profile.shared_cores)
        workers, step = run.num_workers, run.split_step
        by_ddp = scheme.carried_out_by_ddp and workers > 1 and step is None
        self.seconds_of_ddp = profile.added_seconds("ddp") if by_ddp else 0.0
        overlap = profile.overlaps(workers) and step is None
        tensors = [shape.numel() for shape in shapes]
        workload = run.workload or OwnNetwork()
        self.sizes = MessageSizes(workload, weights.nbytes, overlap, tensors)
        self.profile, self.split = profile, None
        if step is not None:
            self.split = VirtualSplit(step, scheme, profile, workers, self.cores, self.kernel)
            self.profile = self.split.profile
        self.statistics_pool = BufferPool(statistics)
        self.workers = [
            VirtualWorker(
                index,
                self.statistics_pool.copy(statistics),
                [counter.clone() for counter in counters],
            )
            for index in range(workers)
        ]
        for worker in self.workers if workers <= _TIMELINE_WORKERS else ():
            worker.timeline = []
        shared = messages_at_once(self.profile.topology) is not None
        num_buses = self.profile.num_nodes(workers) if shared else 0
        self.buses = Buses(self.kernel, self.cores, num_buses)
        self.network = VirtualNetwork(
            self.profile,
            workers,
            scheme.servers,
            kernel=self.kernel,
            buses=self.buses,
            star=scheme.servers == 1 and scheme.group_size == 1,
            seed=step_times.seed,
        )
