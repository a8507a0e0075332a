"""Parts that all processes of a simulated run share: workers, cores, links and message sizes."""

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.kernel import Buses, Cores, Kernel
from paceline.clock.virtual.message_sizes import MessageSizes, VectorSizes
from paceline.clock.virtual.virtual_network import VirtualNetwork
from paceline.clock.virtual.virtual_split import VirtualSplit
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile, messages_at_once

_TIMELINE_WORKERS = 16  # no figure shows more rows


class SimulationParts:
    """Workers of a run, and the cluster on which they exchange messages. `profile`: that of the
    processes that exchange gradients, which are the first ones of split workers. `split`: processes
    of split workers; None for whole ones. `seed`: that of random links. `snapshots`: samples and
    virtual seconds of each.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        profile: ClusterProfile,
        sizes: VectorSizes,
        *,
        seed: int,
    ) -> None:
        self.scheme, self.run, self.kernel = scheme, run, Kernel()
        workers, shown = range(run.num_workers), run.num_workers <= _TIMELINE_WORKERS
        self.workers = [VirtualWorker(index, has_timeline=shown) for index in workers]
        self.snapshots: list[tuple[int, float]] = []
        self.cores = Cores(self.kernel, profile.shared_cores)
        self.sizes = MessageSizes(scheme, run, profile, sizes)
        self.split, self.profile = None, profile
        if run.split_step is not None:
            of_split = (run.split_step, scheme, profile, run.num_workers)
            self.split = VirtualSplit(*of_split, self.cores, self.kernel)
            self.profile = self.split.profile
        shared = messages_at_once(self.profile.topology) is not None
        num_buses = self.profile.num_nodes(run.num_workers) if shared else 0
        self.buses = Buses(self.kernel, self.cores, num_buses)
        self.network = VirtualNetwork(
            self.profile,
            run.num_workers,
            scheme.servers,
            kernel=self.kernel,
            buses=self.buses,
            star=scheme.servers == 1 and scheme.group_size == 1,
            seed=seed,
        )
