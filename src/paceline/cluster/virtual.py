"""Modelled cluster on a virtual clock: one process computes for all workers and servers."""

from __future__ import annotations

import math
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from paceline.clock.reports import TrainingClock
from paceline.cluster.cluster import AbstractCluster, Kind, SlurmQueue
from paceline.cluster.launcher import launch_task
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import (
    UNKEYED,
    Bandwidth,
    Neutral,
    NotNegative,
    Positive,
    Whole,
    settings,
)
from paceline.timing.chip import Chip
from paceline.timing.profile import (
    ClusterProfile,
    Link,
    Overlap,
    ServerPlacement,
    SharedCores,
    Topology,
    check_places,
    check_topology,
)
from paceline.timing.step_times import TRAINED, StepRate
from paceline.timing.workload import OWN, AbstractWorkload

if TYPE_CHECKING:
    import torch

    from paceline.clock.run_spec import RunSpec
    from paceline.clock.split.split_worker import SplitWorker
    from paceline.clock.training_strategy import AbstractTrainingStrategy


@settings("cluster")
class VirtualCluster(AbstractCluster):
    """Modelled cluster; ClusterProfile documents the fields that both have.

    `step_rates`: step time of its accelerator by workload; `step_seconds` overrides it.
    `fitted_to`: ids of the rows of papers/published.csv to which its other numbers were fitted.
    `assumed`: least and greatest value of each assumed setting, for intervals. `shared_cores`:
    cores of one machine on which all processes compute, with measured step times; `step_seconds`
    overrides these for emulated accelerators. `chip`: its accelerator, for networks that have no
    other step time; None if it is not known. `queue`: Slurm queue whose jobs run the virtual
    clock; None to run it here. `engine`: way to compute the gradients of many workers, see
    wave_engines; results differ by rounding.
    """

    server_bandwidth: Bandwidth
    workers_per_node: Whole | None
    node_cores: Positive | None
    link: Link
    node_link: Link
    server_placement: ServerPlacement
    overlap: Overlap
    step_rates: Annotated[dict[str, StepRate], Neutral({})]
    fitted_to: Annotated[list[str], UNKEYED]
    assumed: Annotated[dict[str, tuple[NotNegative, Positive]], UNKEYED]
    allreduce_link: Link | None = None
    message_seconds: dict[Whole, NotNegative] = field(default_factory=dict[Whole, NotNegative])
    message_bandwidth: dict[Whole, Positive] = field(default_factory=dict[Whole, Positive])
    shared_cores: SharedCores | None = None
    chip: Annotated[Chip | None, Neutral(None)] = None
    topology: Topology = "unshared"
    server_tensor_seconds: Annotated[NotNegative, Neutral(0)] = 0.0
    server_copy_bandwidth: Annotated[Bandwidth, Neutral(None)] = math.inf
    queue: Annotated[SlurmQueue | None, UNKEYED] = None
    engine: Annotated[Literal["auto", "one_by_one", "graph", "vmap"], UNKEYED] = "auto"

    @property
    def kind(self) -> Kind:
        return "virtual"

    @property
    def submitted_to(self) -> SlurmQueue | None:
        return self.queue

    @property
    def profile(self) -> ClusterProfile:
        """Cost of messages and servers on this cluster."""
        known: dict[str, Any] = {"shared_cores": self._cores}
        names = [each.name for each in fields(ClusterProfile) if each.name not in known]
        return ClusterProfile(**known, **{name: getattr(self, name) for name in names})

    @property
    def _cores(self) -> SharedCores | None:
        return self.shared_cores if self.step_seconds is None else None

    def num_processes(self, scheme: AbstractScheme, num_workers: int) -> tuple[int, int]:
        return 1, 0

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        super().check(scheme, num_workers)
        check_topology(self.profile, num_workers)
        timed = self.step_rates or self.chip or self._cores
        if self.step_seconds is None and not timed:
            raise SettingError("cluster.step_seconds", "the virtual clock needs a value")
        if self._cores is not None and self.workers_per_node is not None:
            message = "all processes are on one machine; cluster.workers_per_node must be null"
            raise SettingError("cluster.shared_cores", message)

    def check_shards(self, workers: int, shards: int) -> None:
        check_places(self.profile, workers, shards)
        check_topology(self.profile, workers * shards)

    def check_workload(self, workload: AbstractWorkload) -> None:
        timed = self._cores is not None and workload.name == OWN
        if self.step_seconds is not None or timed or self.rate_of(workload) is not None:
            return
        known = {*self.step_rates, *([OWN] if self._cores else ())}
        known |= {*self.chip.measured} if self.chip else set()
        names = ", ".join(sorted(known)) or "none"
        if self.chip is None:
            others = "a cluster with a chip, such as dgx_a100, times any network"
        else:
            others = "this chip times any network that is counted, by paceline calibrate --count"
        message = (
            f"the step of {workload.name} is not known for this cluster; there are: {names}; "
            f"{others}; or choose cluster.step_seconds yourself"
        )
        raise SettingError("workload", message)

    def rate_of(self, workload: AbstractWorkload) -> StepRate | None:
        """Return the rate that times a workload's step; None if seconds were measured or set."""
        if self.step_seconds is not None:
            return None
        rate = self.step_rates.get(workload.name)
        return self.chip.rate(workload) if rate is None and self.chip is not None else rate

    def assumes_rate_of(self, workload: AbstractWorkload) -> bool:
        """Return True if a workload's step is timed by its FLOPs and an assumed utilisation."""
        known = self.step_seconds is not None or workload.name in self.step_rates
        return self.chip is not None and not known and workload.name not in self.chip.measured

    def covers(self, workload: AbstractWorkload, batch_size: int) -> bool:
        """Return True if `batch_size` is within the range that was measured or published."""
        if (rate := self.rate_of(workload)) is not None:
            return rate.covers(batch_size)
        known = self._cores.step_seconds if self._cores is not None else self.step_seconds
        return not isinstance(known, dict) or min(known) <= batch_size <= max(known)

    def mean_step_seconds(
        self, batch_size: int, workload: AbstractWorkload = TRAINED
    ) -> float | None:
        if self._cores is not None and workload.name == OWN:
            return self._cores.mean_step_seconds(batch_size)
        if self.step_seconds is None:
            rate = self.rate_of(workload)
            return None if rate is None else rate.seconds(batch_size)
        return super().mean_step_seconds(batch_size, workload)

    def strategy(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        device: torch.device,
        clock: TrainingClock,
        split: SplitWorker | None = None,
    ) -> AbstractTrainingStrategy:
        from paceline.clock.virtual.virtual_strategy import VirtualStrategy  # Lightning: seconds

        workload = run.workload or TRAINED
        return VirtualStrategy(
            scheme,
            run,
            step_times=self.step_times(run.batch_size, run.seed, workload),
            profile=self.profile,
            device=device,
            real_seconds=clock.seconds,
            engine=self.engine,
        )

    def run(self, task: Task) -> list[Any]:
        return launch_task(replace(task, shards=1))
