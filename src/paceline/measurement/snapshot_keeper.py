"""Keeps snapshots of a synchronous run; a parameter server keeps those of the others itself."""

import torch
import torch.distributed as dist
from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.cluster.snapshot import Snapshot, flatten, statistics_of
from paceline.cluster.sync_allreduce import SynchronousProgress
from paceline.cluster.training_clock import TrainingClock


class SnapshotKeeper(Callback):
    """Keeps weights after the updates named in `steps`, worker n modulo workers the n-th of them.

    BatchNorm statistics are averaged over workers, and a run whose weights are not finite is
    stopped, both with the clock stopped: every worker meets here. Placed before `Observer`.
    """

    def __init__(
        self, progress: SynchronousProgress, steps: list[int], clock: TrainingClock
    ) -> None:
        self.snapshots: list[Snapshot] = []
        self.diverged = False
        self._progress = progress
        self._steps = steps
        self._clock = clock

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        updates = self._progress.updates
        if updates not in self._steps:
            return
        seconds = self._clock.seconds()
        with self._clock.stopped():
            statistics = mean_statistics(pl_module)
            weights = list(pl_module.parameters())
            self.diverged = not all(bool(weight.isfinite().all()) for weight in weights)
            trainer.should_stop = trainer.should_stop or self.diverged
            if self._steps.index(updates) % dist.get_world_size() == dist.get_rank():
                size = sum(weight.numel() for weight in weights)
                kept = flatten(weights, torch.empty(size, dtype=weights[0].dtype))
                self.snapshots.append(
                    Snapshot(self._progress.samples, updates, seconds, kept, statistics)
                )


def mean_statistics(module: LightningModule) -> torch.Tensor:
    """BatchNorm's running statistics, averaged over workers; all of them must call this."""
    tensors = statistics_of(module)
    dtype = tensors[0].dtype if tensors else torch.float32
    values = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=dtype)
    if tensors:
        dist.all_reduce(flatten(tensors, values))
    return values / dist.get_world_size()
