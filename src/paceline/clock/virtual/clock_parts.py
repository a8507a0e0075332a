"""Parts that all processes of one virtual clock share: the modelled cluster, and its workers."""

from collections.abc import Sequence

from torch import Tensor

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.buffers import BufferPool
from paceline.clock.virtual.cores import cores_of
from paceline.clock.virtual.kernel import Kernel
from paceline.clock.virtual.message_sizes import MessageSizes
from paceline.clock.virtual.virtual_network import VirtualNetwork
from paceline.clock.virtual.virtual_split import VirtualSplit
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import OwnNetwork

_TIMELINE_WORKERS = 16  # more rows than that no figure shows


class ClockParts:
    """Workers, links between nodes, cores and buffers of one virtual clock, from which links are
    made.

    `weights`: the first ones, as one vector. `statistics`: floating-point buffers of the module, as
    one vector. `counters`: its other buffers. `recycled`: False if no two workers share a vector,
    which must not change a bit of the run. `split`: processes of split workers; None for whole
    ones. `profile`: of the processes that exchange gradients, the first ones of split workers.
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
        recycled: bool = True,
    ) -> None:
        self.scheme, self.run, self.step_times, self.recycled = scheme, run, step_times, recycled
        self.kernel, self.pool = Kernel(), BufferPool(weights, recycled=recycled)
        self.cores = cores_of(profile.shared_cores, self.kernel)
        workers, step = run.num_workers, run.split_step
        by_ddp = scheme.carried_out_by_ddp and workers > 1 and step is None
        self.seconds_of_ddp = profile.ddp_seconds if by_ddp else 0.0
        overlap = profile.overlaps(workers) and step is None
        self.sizes = MessageSizes(run.workload or OwnNetwork(), weights.nbytes, overlap=overlap)
        self.profile, self.split = profile, None
        if step is not None:
            self.split = VirtualSplit(step, scheme, profile, workers, self.cores, self.kernel)
            self.profile = self.split.profile
        self.workers = _workers(workers, statistics, counters)
        self.network = VirtualNetwork(
            self.profile,
            workers,
            scheme.servers,
            kernel=self.kernel,
            cores=self.cores,
            star=scheme.servers == 1 and scheme.group_size == 1,
            seed=step_times.seed,
        )


def _workers(number: int, statistics: Tensor, counters: Sequence[Tensor]) -> list[VirtualWorker]:
    own = BufferPool(statistics)
    workers = [
        VirtualWorker(index, own.copy(statistics), [counter.clone() for counter in counters])
        for index in range(number)
    ]
    for worker in workers if number <= _TIMELINE_WORKERS else ():
        worker.timeline = []
    return workers
