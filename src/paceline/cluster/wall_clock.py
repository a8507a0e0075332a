"""Base class of clusters of real processes, one for each worker and each server."""

from abc import ABC
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from paceline.clock.reports import TrainingClock
from paceline.clock.run_spec import RunSpec
from paceline.cluster.cluster import AbstractCluster, Kind
from paceline.exchange.process_group import worker_index
from paceline.scheme.rule import AbstractScheme
from paceline.settings import settings
from paceline.timing.pace import Pace
from paceline.timing.step_times import StepTimes
from paceline.timing.workload import AbstractWorkload

if TYPE_CHECKING:
    from paceline.clock.split_worker import SplitWorker
    from paceline.clock.training_strategy import AbstractTrainingStrategy


@settings("cluster")
class AbstractWallClockCluster(AbstractCluster, ABC):
    """A cluster of real processes; `run` starts them and connects them to each other."""

    @property
    def kind(self) -> Kind:
        paced = self.step_seconds is not None or self.server_seconds > 0
        return "paced" if paced else "measured"

    def num_processes(self, scheme: AbstractScheme, num_workers: int) -> tuple[int, int]:
        return num_workers, scheme.servers

    def carried_out_by_ddp(self, scheme: AbstractScheme) -> bool:
        return scheme.carried_out_by_ddp

    def fill(self, module: Any, workload: AbstractWorkload, weight_bytes: int) -> None:
        from paceline.model.filling import fill  # Lightning takes seconds

        own = weight_bytes * sum(weight.numel() for weight in module.parameters())
        fill(module, workload.message_bytes(own, own), weight_bytes)

    def paced_times(self, run: RunSpec) -> StepTimes | None:
        """Return the durations of all steps of a run; None if steps are not emulated."""
        return self.step_times(run.batch_size, run.seed)

    def strategy(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        device: torch.device,
        clock: TrainingClock,
        split: "SplitWorker | None" = None,
    ) -> "AbstractTrainingStrategy":
        from paceline.clock.wall.wall_strategies import wall_strategy  # Lightning takes seconds

        times = self.paced_times(run)
        if times is not None and split is not None:
            times = replace(times, step_seconds=times.step_seconds / split.shards)
        pace = Pace(times, worker_index(), run.workload) if times else None
        return wall_strategy(scheme, run, device=device, clock=clock, pace=pace, split=split)
