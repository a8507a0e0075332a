"""A worker of a point: trains until the budget is used up, then evaluates its snapshots."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from hydra.utils import instantiate
from pytorch_lightning import LightningModule, Trainer, seed_everything

from paceline.cluster.accelerator import choose, device
from paceline.engine.evaluated_weights import evaluated_weights
from paceline.engine.snapshot import Snapshot
from paceline.engine.training_clock import TrainingClock
from paceline.engine.training_strategy import AbstractTrainingStrategy
from paceline.exchange.process_group import local_rank
from paceline.measurement.evaluation import Evaluation
from paceline.measurement.images_seen import images_seen
from paceline.measurement.observer import Observer
from paceline.measurement.timed_batches import TimedBatches
from paceline.record.point import is_virtual, num_workers
from paceline.run.budget import budget_of
from paceline.run.point_data import open_feed
from paceline.run.quiet import quiet_trainer
from paceline.run.seen_of import seen_of
from paceline.run.settings import learning_rate, model
from paceline.run.weights import save_weights
from paceline.scheme.rule import AbstractScheme
from paceline.timing.pace import Pace
from paceline.timing.profile import profile_of
from paceline.timing.step_times import step_times
from paceline.virtual_clock.virtual_strategy import VirtualStrategy
from paceline.wall_clock.wall_strategies import wall_strategy


class Worker:
    """One training process; `folder`: the record in the making."""

    def __init__(self, config: dict[str, Any], scheme: AbstractScheme, folder: Path) -> None:
        self._config, self._scheme = config, scheme
        self._claim = scheme.claim(config["workers"])
        self._folder = folder
        self._worker = dist.get_rank()
        self._joined = time.time()
        self._device = device(
            choose(config["cluster"]["accelerator"], num_workers(config)), local_rank()
        )
        self._feed = open_feed(config, instantiate(config["data"]))
        self._budget = budget_of(config, scheme, self._feed.num_train)
        self._staleness = scheme.expected_staleness(config["workers"])
        self._module = self._build_module()
        self._rate = learning_rate(
            config,
            images_per_update=self._budget.images_per_update,
            epoch=self._feed.num_train,
            samples=self._budget.samples,
            images_meanwhile=self._staleness * scheme.steps_per_push * config["batch_size"],
        )
        self._clock = TrainingClock()
        self._strategy = self._build_strategy()
        self._built = time.time()

    def run(self) -> list[dict[str, Any]]:
        """Return what each worker and server that this process stands for saw."""
        strategy = self._strategy
        live = strategy.is_live and self._worker == 0
        progress = self._folder / "progress.csv" if live else None
        observer = Observer(
            self._clock, lambda: strategy.samples, self._budget.thresholds, progress
        )
        batches = TimedBatches(
            strategy.training_batches(self._feed.train, self._feed.batch), self._clock
        )
        trainer = self._trainer(observer)
        trainer.fit(self._module, batches)
        step_ends = np.array(observer.step_ends)
        report = strategy.report(step_ends, batches.seconds_waiting)
        common = {
            "claim": self._claim,
            "real_step_ends": step_ends,
            "losses": observer.losses(),
            "thresholds": self._budget.thresholds,
            "images_seen": images_seen(
                self._feed.stream,
                strategy.batches_drawn(),
                workers=self._config["workers"],
                batch_size=self._config["batch_size"],
            ),
            "num_parameters": sum(weight.numel() for weight in self._module.parameters()),
            "lr": self._peak_rate(trainer),
            "momentum": trainer.optimizers[0].param_groups[0].get("momentum"),
            "images_per_update": self._budget.images_per_update,
            "evaluated": evaluated_weights(self._scheme),
            "joined": self._joined,
            "built": self._built,
            "training_started": self._clock.started,
            **self._evaluate(),
        }
        return list(seen_of(report, common))

    def _build_strategy(self) -> AbstractTrainingStrategy:
        config, budget = self._config, self._budget
        times, cluster = step_times(config), config["cluster"]
        if is_virtual(config):
            return VirtualStrategy(
                self._scheme,
                workers=config["workers"],
                batch_size=config["batch_size"],
                step_times=times,
                profile=profile_of(cluster),
                num_steps=budget.num_steps,
                snapshot_samples=budget.thresholds,
                learning_rate=self._rate,
                seed=config["seed"],
                device=self._device,
                real_seconds=self._clock.seconds,
            )
        return wall_strategy(
            self._scheme,
            workers=config["workers"],
            batch_size=config["batch_size"],
            num_steps=budget.num_steps,
            snapshot_samples=budget.thresholds,
            learning_rate=self._rate,
            device=self._device,
            clock=self._clock,
            timeout_seconds=cluster["timeout_seconds"],
            pace=Pace(times, self._worker) if times else None,
            server_seconds=cluster["server_seconds"],
        )

    def _build_module(self) -> LightningModule:
        """The same weights on every worker; afterwards, random numbers of its own (dropout)."""
        seed_everything(self._config["seed"], verbose=False)
        module = instantiate(model(self._config, self._staleness))
        torch.manual_seed(self._config["seed"] * 10_007 + self._worker)
        return module

    def _trainer(self, observer: Observer) -> Trainer:
        training = self._config["training"]
        return quiet_trainer(
            callbacks=[observer],
            **self._strategy.trainer_options(),
            accelerator="gpu" if self._device.type == "cuda" else "cpu",
            precision=training["precision"],
            gradient_clip_val=training["gradient_clip_val"],
            max_epochs=1,  # one pass of the loop; the budget is in samples
            use_distributed_sampler=False,
        )

    def _peak_rate(self, trainer: Trainer) -> float:
        """The first group's rate after warm-up, before the schedule lowers it."""
        group = trainer.optimizers[0].param_groups[0]
        rule = replace(self._rate, schedule="constant")
        return group.get("initial_lr", group["lr"]) * rule.factor(rule.warmup_samples)

    def _evaluate(self) -> dict[str, Any]:
        """Scores of this worker's snapshots; of the last one on the test set, if it is ours."""
        snapshots = self._strategy.finish()
        evaluation = Evaluation(self._module, self._strategy.held_weights, self._device)
        scores = []
        ends = self._strategy.real_seconds(snapshots)
        for snapshot, real_seconds in zip(snapshots, ends, strict=True):
            score = evaluation.score(snapshot, self._feed.validation())
            found = score._asdict() | {"at_chance": score.at_chance, "real_seconds": real_seconds}
            scores.append(_where(snapshot) | found)
        ended = bool(snapshots) and snapshots[-1].samples >= self._budget.samples
        test = evaluation.score(snapshots[-1], self._feed.test())._asdict() if ended else None
        if ended and self._config["save_weights"]:
            save_weights(self._module, self._folder / "weights.pt")
        return {"scores": scores, "test": test}


def _where(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "samples": snapshot.samples,
        "updates": snapshot.updates,
        "seconds": snapshot.seconds,
    }
