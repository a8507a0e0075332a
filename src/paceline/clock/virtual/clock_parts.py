"""Parts of a virtual clock, chosen by the scheme and the modelled cluster."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from paceline.clock.run_spec import RunSpec, VectorSpec
from paceline.clock.virtual.buffers import BufferPool
from paceline.clock.virtual.cores import cores_of
from paceline.clock.virtual.kernel import Kernel
from paceline.clock.virtual.message_sizes import MessageSizes
from paceline.clock.virtual.virtual_data import VirtualData
from paceline.clock.virtual.virtual_links import SharedLinks
from paceline.clock.virtual.virtual_mean_link import VirtualMeanLink
from paceline.clock.virtual.virtual_network import VirtualNetwork
from paceline.clock.virtual.virtual_own_weights import VirtualOwnWeights
from paceline.clock.virtual.virtual_pair_link import VirtualPairLink
from paceline.clock.virtual.virtual_push_link import VirtualPushLink
from paceline.clock.virtual.virtual_servers import VirtualServers
from paceline.clock.virtual.virtual_split import VirtualSplit
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.exchange.find_collective import collective
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import OwnNetwork

_TIMELINE_WORKERS = 16  # more rows than that no figure shows


class ClockParts:
    """Workers, servers, links and cores of one virtual clock; None for what the run does not have.

    `weights`: the first ones, as one vector. `statistics`: floating-point buffers of the module, as
    one vector. `counters`: its other buffers.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        vectors: VectorSpec,
        *,
        profile: ClusterProfile,
        step_times: StepTimes,
        weights: Tensor,
        statistics: Tensor,
        counters: Sequence[Tensor] = (),
        recycled: bool = True,
    ) -> None:
        self.scheme, self.run, self.vectors = scheme, run, vectors
        self.step_times, self.weights = step_times, weights
        self.kernel, self.pool = Kernel(), BufferPool(weights, recycled=recycled)
        self._recycled = recycled
        self.cores = cores_of(profile.shared_cores, self.kernel)
        whole = run.split_step is None
        by_ddp = scheme.carried_out_by_ddp and run.num_workers > 1 and whole
        self.seconds_of_ddp = profile.ddp_seconds if by_ddp else 0.0
        overlap = profile.overlaps(run.num_workers) and whole
        workload = run.workload or OwnNetwork()
        self._sizes = MessageSizes(workload, weights.nbytes, overlap=overlap)
        self.split = self._make_split(profile)
        self._profile = profile if self.split is None else self.split.profile
        self.workers = self._make_workers(statistics, counters)
        self.network = self._make_network()
        self.data: VirtualData | None = None
        if run.traffic:
            self.data = VirtualData(run.traffic, self.workers, self._profile, self.kernel)
        self.servers = self._make_servers()
        push, own, mean = self._push_link(), self._own_weights(), self._mean_link()
        self.links = SharedLinks(self.pool, mean, push, self._pair_link(own), own)

    def _make_split(self, profile: ClusterProfile) -> VirtualSplit | None:
        step, workers = self.run.split_step, self.run.num_workers
        if step is None:
            return None
        return VirtualSplit(step, self.scheme, profile, workers, self.cores, self.kernel)

    def _make_workers(self, statistics: Tensor, counters: Sequence[Tensor]) -> list[VirtualWorker]:
        own = BufferPool(statistics)
        workers = [
            VirtualWorker(index, own.copy(statistics), [counter.clone() for counter in counters])
            for index in range(self.run.num_workers)
        ]
        for worker in workers if len(workers) <= _TIMELINE_WORKERS else ():
            worker.timeline = []
        return workers

    def _make_network(self) -> VirtualNetwork:
        return VirtualNetwork(
            self._profile,
            len(self.workers),
            self.scheme.servers,
            kernel=self.kernel,
            cores=self.cores,
            star=self.scheme.servers == 1 and self.scheme.group_size == 1,
            seed=self.step_times.seed,
        )

    def _make_servers(self) -> VirtualServers | None:
        if not self.scheme.servers:
            return None
        return VirtualServers(
            self.scheme,
            self.run,
            self.vectors,
            self.weights.clone(),
            workers=self.workers,
            kernel=self.kernel,
            pool=self.pool,
        )

    def _push_link(self) -> VirtualPushLink | None:
        if self.servers is None:
            return None
        return VirtualPushLink(
            self.scheme,
            self.servers,
            workers=self.workers,
            profile=self._profile,
            network=self.network,
            sizes=self._sizes,
            kernel=self.kernel,
            cores=self.cores,
            pool=self.pool,
        )

    def _own_weights(self) -> VirtualOwnWeights | None:
        if not Accounting(self.scheme, self.run.num_workers).own_weights:
            return None
        return VirtualOwnWeights(
            self.scheme,
            self.run,
            self.vectors,
            self.weights,
            workers=self.workers,
            kernel=self.kernel,
            pool=self.pool,
            recycled=self._recycled,
        )

    def _pair_link(self, own: VirtualOwnWeights | None) -> VirtualPairLink | None:
        if own is None:
            return None
        return VirtualPairLink(
            own.states, self.workers, network=self.network, sizes=self._sizes, pool=self.pool
        )

    def _mean_link(self) -> VirtualMeanLink:
        num_workers, chosen = self.run.num_workers, collective(self.scheme.collective)
        make = partial(
            VirtualMeanLink, self.pool, self.workers, sizes=self._sizes, kernel=self.kernel
        )
        if self.split is not None and self.split.by_parts:
            return make(seconds=self.split.mean_seconds, volumes=self.split.mean_volumes)
        profile = self._profile
        return make(
            seconds=partial(chosen.seconds, workers=num_workers, profile=profile),
            volumes=lambda length: chosen.volumes(num_workers, length, profile.workers_per_node),
        )
