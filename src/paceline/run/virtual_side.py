"""One process that stands for all workers and servers of a point, on the virtual clock."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import LightningModule
from torch import nn

from paceline.engine.snapshot import Snapshot
from paceline.engine.training_clock import TrainingClock
from paceline.model.learning_rate import LearningRate
from paceline.run.budget import Budget
from paceline.run.point_data import Feed
from paceline.run.side import AbstractSide, evaluated
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import profile_of
from paceline.timing.step_times import step_times
from paceline.virtual_clock.batches import VirtualBatches
from paceline.virtual_clock.strategy import VirtualCluster
from paceline.virtual_clock.worker import VirtualWorker


class VirtualSide(AbstractSide):
    live = False

    def __init__(
        self,
        config: dict[str, Any],
        scheme: AbstractScheme,
        budget: Budget,
        rate: LearningRate,
        clock: TrainingClock,
        device: torch.device,
    ) -> None:
        self.num_batches = budget.most_batches
        self.evaluated = evaluated(Accounting(scheme, config["workers"]))
        self._batch_size = config["batch_size"]
        self._strategy = VirtualCluster(
            scheme,
            workers=config["workers"],
            step_times=step_times(config),
            profile=profile_of(config["cluster"]),
            num_steps=budget.num_steps,
            snapshot_samples=budget.thresholds,
            learning_rate=rate,
            seed=config["seed"],
            device=device,
            real_seconds=clock.seconds,
        )

    def _distribution(self) -> dict[str, Any]:
        return {"strategy": self._strategy, "devices": 1, "plugins": [LightningEnvironment()]}

    def batches(self, feed: Feed, worker: int) -> VirtualBatches:
        return self._strategy.batches(feed.batch, self._batch_size, self.num_batches)

    def draws(self, steps: int, worker: int) -> Iterable[tuple[int, int]]:
        return ((each.index, turn) for each in self._workers for turn in range(each.finished))

    def real_seconds(self, snapshots: list[Snapshot]) -> list[float]:
        return self._strategy.snapshots_at

    def samples(self) -> int:
        return self._strategy.clock.holder.samples

    def held(self, module: LightningModule) -> list[nn.Parameter]:
        return self._strategy.held

    def finish(self) -> list[Snapshot]:
        return self._strategy.clock.holder.snapshots

    def seen(self, steps: int) -> dict[str, Any]:
        clock = self._strategy.clock
        served = clock.servers.served if clock.servers else []
        return {
            "counted": sum(worker.finished > 0 for worker in self._workers),
            "updates": clock.holder.updates,
            "diverged": clock.holder.diverged,
            "late_steps": 0,
            "each_worker": [_seen_of(worker) for worker in self._workers],
            "each_server": [asdict(server.report) for server in served],
        }

    @property
    def _workers(self) -> list[VirtualWorker]:
        return self._strategy.clock.workers


def spread(seen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """From what the process saw to what each of its workers and servers did.

    What cannot be told apart (losses, images, scores, real time) is the first worker's.
    """
    common = {name: value for name, value in seen.items() if name not in _SEPARATE}
    rest = common | {
        "losses": [(0.0, 0)] * len(seen["losses"]),
        "images_seen": np.zeros_like(seen["images_seen"]),
        "real_step_ends": (),
        "scores": [],
        "test": None,
    }
    for turn, each in enumerate(seen["each_worker"]):
        yield (rest if turn else common) | each
    yield from seen["each_server"]


_SEPARATE = ("each_worker", "each_server")


def _seen_of(worker: VirtualWorker) -> dict[str, Any]:
    return {
        "worker": worker.index,
        "steps": worker.finished,
        "step_ends": np.array(worker.step_ends),
        "seconds_data": 0.0,
        "seconds_communicate": worker.seconds_communicating,
        "bytes_sent": worker.bytes_sent,
        "bytes_received": worker.bytes_received,
        "averages": worker.averages,
        "numbers": worker.numbers,
        "timeline": worker.timeline or (),
        "weights_digest": _digest(worker),
    }


def _digest(worker: VirtualWorker) -> str:
    """Of the weights that the worker ended with; all hold the same where they meet."""
    weights = worker.weights
    content = b"" if weights is None else weights.vector.detach().cpu().float().numpy().tobytes()
    return hashlib.sha256(content).hexdigest()
