"""The processes of a point's run: training processes and servers.

A training process trains until the end of the budget, then scores the snapshots that it has kept.
"""

import math
import os
import resource
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import yaml
from pytorch_lightning import Callback, LightningModule, Trainer

from paceline.clock.reports import ServerReport, TrainingClock
from paceline.clock.run_spec import RunSpec
from paceline.clock.snapshot import Snapshot, evaluated_weights
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.training_strategy import RemoteOptimizer, seed_generators
from paceline.clock.wall.ddp import SyncAllReduceStrategy
from paceline.clock.wall.server import serve
from paceline.cluster.child import stopped_seconds, tolerate
from paceline.cluster.cluster import device, device_of_server
from paceline.errors import SettingError
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import (
    divide,
    division,
    join,
    leave,
    local_rank,
    shard_index,
    worker_index,
)
from paceline.model.score import Score
from paceline.record.data_digest import data_digest
from paceline.record.observed import SnapshotScore, TrainingReport
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.provenance import source_digest
from paceline.run.asked import leave_signals_to_launcher
from paceline.run.budget import budget_of, split_step_of
from paceline.run.checkpoints import CheckpointFiles, Checkpoints, ServerCheckpoints
from paceline.run.observer import Evaluation, Observer, TimedBatches
from paceline.run.open_data import open_data
from paceline.run.placed_data import reading_of
from paceline.run.process_watch import check_settings, forms_group, refuse_strangers, settings_kept
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.rehearsal import rehearse_scores
from paceline.run.run_trainer import RunTrainer, Told
from paceline.run.users_module import (
    HeededSettings,
    WatchedWeights,
    complete,
    forget_seed,
    has_known_layers,
    meet_strategy,
    require_memory,
    seed_equally,
    seeds_itself,
    trains_as_ours,
)
from paceline.run.weights import load_weights, save_weights
from paceline.scheme.counts import Counts
from paceline.timing.step_times import give_way


def run(point: Point, folder: Path) -> TrainingReport | ServerReport:
    """Act as a worker or a server of `point`, and return a report of the observations.

    The rank of the process decides: the first ranks are workers, the last ones servers. `folder`:
    folder of the partial record.
    """
    silence()
    if point.training.checkpoint_seconds is not None:
        leave_signals_to_launcher()
    torch.set_num_threads(point.cluster.threads_per_worker)
    workers_each = point.cluster.workers_per_accelerator
    join(point.cluster.peer_seconds, point.device if workers_each == 1 else "cpu")
    num_training, num_servers = point.num_processes
    if point.sharding.shards > 1 and point.kind != "virtual":
        divide(point.workers, point.sharding.shards)
    if dist.get_rank() < num_training:
        if point.kind == "paced" and num_servers:
            give_way()
        with settings_kept() as before:
            report = TrainingProcess(point, folder, before).run()
    else:
        server = f"server_{dist.get_rank() - num_training}"
        kept = ServerCheckpoints(point, folder, server)
        torch.set_num_threads(_threads_of_server(point))
        on = device_of_server(point.server_device, local_rank(), workers_each)
        report = serve(point.scheme, tolerate, kept, on)
    leave()  # not after an error, because peers would then report a closed connection
    report.stopped_seconds = stopped_seconds()
    report.peak_rss_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return report


def run_recorded(folder: str, code: str) -> TrainingReport | ServerReport:
    """Act as `run` does, on any machine, for the partial record in `folder`, which has the settings
    of the point. Raises SettingError if this machine's source has another digest than `code`.
    """
    if (here := source_digest()) != code:
        host = socket.gethostname()
        message = f"the code on {host} is {here}, and {code} where the run was started"
        raise SettingError("cluster", message)
    config = yaml.safe_load((Path(folder) / "config.yaml").read_text())
    return run(Point.unchecked(PointConfig(config)), Path(folder))


def _threads_of_server(point: Point) -> int:
    """Return the CPU threads of a server: those that the machine has to spare beside workers on
    GPUs. Workers on CPUs leave none.
    """
    threads = point.cluster.threads_per_worker
    if point.device == "cpu":
        return threads
    processes = int(os.environ.get("LOCAL_WORLD_SIZE") or sum(point.num_processes))
    return max(threads, len(os.sched_getaffinity(0)) // processes)


class TrainingProcess:
    """Trains one worker of `point`, a part of a split worker, or all workers on a virtual clock.

    `folder`: folder of the partial record. `settings`: those of this process, see
    `process_watch`, which the user's code must not change.
    """

    def __init__(self, point: Point, folder: Path, settings: Mapping[str, Any]) -> None:
        self._point, self._folder = point, folder
        self._worker = worker_index()
        self._joined = time.time()
        workers_each = point.cluster.workers_per_accelerator
        self._device = device(point.device, local_rank(), workers_each)
        worker = None if point.kind == "virtual" else self._worker
        reading = replace(reading_of(point), worker=worker)
        seed_equally(point.seed)  # for what data draw, as a split
        data = point.data.build()
        self._datamodule = None if point.data.is_ours else data
        self._data = open_data(data, reading)
        check_settings(settings, "data")
        self._is_first = self._worker == shard_index() == 0
        files = point.config.files_of_model
        self._data_digest = data_digest(point.data, *files) if self._is_first else None
        self._budget = budget_of(point, self._data.num_train)
        self._counts = Counts(point.scheme, point.workers)
        self._module = self._build_module()
        check_settings(settings, "model")
        self._split = self._split_worker()
        self._run = self._run_spec()
        self._clock = TrainingClock()
        self._strategy = point.cluster.strategy(
            point.scheme, self._run, self._device, self._clock, self._split
        )
        self._built = time.time()

    def run(self) -> TrainingReport:
        """Train, score the snapshots, and return a report of the observations.

        Raises SettingError before training if module and data cannot be trained or evaluated.
        """
        strategy, data, point, clock = self._strategy, self._data, self._point, self._clock
        by_hand, caution = self._rehearse()
        is_watched = not self._is_plain and self._split is None and point.workers > 1
        watched = WatchedWeights(self._module) if is_watched else None
        observer = Observer(
            clock,
            strategy.steps_of_batch,
            self._budget.thresholds,
            live=self._folder / "progress.csv" if self._is_first else None,
            training_seconds=strategy.seconds,
        )
        drawn = strategy.training_batches(data)
        batches = TimedBatches(drawn, clock, waits=self._split is not None)
        files = CheckpointFiles(point, self._folder, f"worker_{self._worker}")
        strategy.part = files.before
        checkpoints = Checkpoints(point, clock, strategy, files)
        callbacks: list[Callback] = [observer, checkpoints]
        if watched is not None:
            callbacks.append(watched)
        if not point.model.is_ours and files.before is None:
            callbacks.append(HeededSettings(point.training))
        trainer = self._trainer(callbacks)
        if isinstance(trainer, RunTrainer):
            batches.epoch_ended = lambda: self._epoch_ended(trainer)
            trainer.batches = lambda: strategy.known_batches if batches.begun else 0
        if point.device == "cuda" and point.cluster.workers_per_accelerator > 1:
            require_memory(self._module, data.batch(self._worker, 0), self._device, point)
        trainer.fit(
            self._split.trained if self._split else self._module,
            batches,
            ckpt_path=files.before,
            weights_only=True,
        )
        rest()
        if not trainer.should_stop:
            batches.check_end()
        report = self._report(trainer, observer, batches, files, by_hand)
        report.cautions = [each for each in (self._caution, caution) if each]
        self._evaluate(report, trainer, watched)
        return report

    def _rehearse(self) -> tuple[bool, str | None]:
        """Try a user's module before training; see `meet_strategy` for what is returned."""
        point = self._point
        if self._is_first and not (point.model.is_ours and point.data.is_ours):
            rehearse_scores(self._module, self._data)
        shared = point.kind == "virtual" and point.workers > 1  # whose layers must not remember
        tried = not self._is_plain or (shared and not has_known_layers(self._module))
        if not tried or not (self._split is None or self._split.is_first):
            return False, None
        module, strategy = self._module, self._strategy
        return meet_strategy(module, self._data, self._told, point, strategy, self._worker)

    def _report(
        self,
        trainer: Trainer,
        observer: Observer,
        batches: TimedBatches,
        files: CheckpointFiles,
        by_hand: bool,
    ) -> TrainingReport:
        """Return a report of the observations, without scores. `by_hand`: see `_rehearse`."""
        step_ends, traffic = np.array(observer.step_ends), self._data.traffic
        averaged = self._run.sample_decay is not None
        schedulers = ", ".join(_name_of(each.scheduler) for each in trainer.lr_scheduler_configs)
        return TrainingReport(
            strategy=self._strategy.report(step_ends, batches.seconds_waiting),
            evaluated=evaluated_weights(self._point.scheme, averaged=averaged),
            images_per_update=self._budget.images_per_update,
            num_parameters=self._num_parameters,
            lr=(self._point.training.lr if by_hand else None) or self._peak_rate(trainer),
            momentum=trainer.optimizers[0].param_groups[0].get("momentum"),
            thresholds=self._budget.thresholds,
            losses=observer.losses(),
            real_step_ends=step_ends,
            order=traffic.order,
            images_seen=traffic.order.times_drawn(self._strategy.batches_drawn()),
            moved=traffic.moved,
            scores=[],
            test=None,
            joined=self._joined,
            built=self._built,
            training_started=self._clock.started,
            shard=shard_index(),
            checkpoints=files.written,
            resumes=files.resumes,
            data_digest=self._data_digest,
            optimizer=_name_of(trainer.optimizers[0]),
            scheduler=schedulers or ("own hooks" if by_hand else None),
        )

    @property
    def _told(self) -> Told:
        """Facts that a user's module is told of the run."""
        epochs = self._point.training.epochs
        if self._point.training.samples:
            epochs = self._point.training.samples / self._data.num_train
        epochs = max(1, math.ceil(round(epochs, 6)))
        return Told(self._budget.num_steps, epochs, self._point.workers, self._datamodule)

    def _epoch_ended(self, trainer: RunTrainer) -> bool:
        """Return True if all workers together have passed over the training set once more."""
        ended = trainer.current_epoch + 1
        if ended >= self._told.num_epochs:
            return False
        return self._strategy.samples_before_next() >= ended * self._data.num_train

    def _run_spec(self) -> RunSpec:
        point, budget = self._point, self._budget
        run = RunSpec(
            num_workers=point.workers,
            batch_size=point.batch_size,
            num_steps=budget.num_steps,
            snapshot_samples=budget.thresholds,
            seed=point.seed,
            epoch_samples=self._data.num_train,
            server_seconds=point.cluster.server_seconds,
            timeout_seconds=point.cluster.peer_seconds,
            servers_on_gpus=point.kind != "virtual" and point.server_device == "cuda",
            workload=point.workload,
            traffic=self._data.traffic,
            split_step=split_step_of(
                point, lambda: self._module, lambda: self._data.batch(self._worker, 0)[0].shape[1:]
            )
            if point.kind == "virtual"
            else None,
        )
        return point.training.applied_to(
            run,
            images_per_update=budget.images_per_update,
            images_meanwhile=self._counts.batches_meanwhile * point.batch_size,
        )

    def _build_module(self) -> LightningModule:
        """Build the module with the same random or loaded weights on every worker.

        Later random numbers (dropout, augmentation) differ between workers.
        """
        seed = self._point.seed
        seed_equally(seed)
        point, training = self._point, self._point.training
        target = training.corrected(point.model, self._counts.expected_staleness)
        with refuse_strangers(forms_group(point)):
            module = target.build()
            self._caution = None
            own_weights = training.initial_weights is None and not target.is_ours
            if self._is_first and own_weights and seeds_itself(module, target.build, seed):
                name = f"{type(module).__name__} begins with the same weights for every seed"
                self._caution = f"{name}, so that intervals over seeds do not include these"
            first = partial(self._data.batch, self._worker, 0)
            together = point.cluster.carried_out_by_ddp(point.scheme)
            complete(module, self._told, seed, lambda: first()[0], together=together)
        forget_seed()
        self._is_plain = trains_as_ours(module)
        if training.initial_weights is not None:
            load_weights(module, training.initial_weights)
        self._num_parameters = sum(weight.numel() for weight in module.parameters())
        weight_bytes = reading_of(point).dtype.itemsize
        point.cluster.fill(module, point.workload, weight_bytes)
        seed_generators(seed * 10_007 + self._worker)
        return module

    def _split_worker(self) -> SplitWorker | None:
        """Return this process's part of a split worker; None if workers are not split."""
        if self._point.sharding.shards == 1 or self._point.kind == "virtual":
            return None
        images, _ = self._data.batch(self._worker, 0)
        split = SplitWorker(self._module, self._point.sharding, division(), images)
        self._module = split.whole
        return split

    def _trainer(self, callbacks: list[Callback]) -> Trainer:
        training = self._point.training
        trainer = quiet_trainer(
            Trainer if self._is_plain else RunTrainer,
            callbacks=callbacks,
            **self._strategy.trainer_options(),
            accelerator="gpu" if self._device.type == "cuda" else "cpu",
            precision=training.precision,
            gradient_clip_val=training.gradient_clip_val,
            gradient_clip_algorithm=training.gradient_clip_algorithm,
            # one pass of the loop, as the budget is in samples, unless a user's module counts them
            max_epochs=1 if self._is_plain else self._told.num_epochs,
            use_distributed_sampler=False,
        )
        if isinstance(trainer, RunTrainer):
            trainer.told = self._told
            trainer.by_ddp = isinstance(self._strategy, SyncAllReduceStrategy)
        return trainer

    def _peak_rate(self, trainer: Trainer) -> float:
        """Return the learning rate after warm-up, before the schedule lowers it: that of the group
        of weights with the highest.
        """
        assert self._run.learning_rate is not None
        rule = replace(self._run.learning_rate, schedule="constant")
        groups = trainer.optimizers[0].param_groups
        begun = [each.get("max_lr", each.get("initial_lr", each["lr"])) for each in groups]
        return max(begun) * rule.factor(rule.warmup_samples)

    def _evaluate(
        self, report: TrainingReport, trainer: Trainer, watched: WatchedWeights | None
    ) -> None:
        """Score the snapshots that this process has, and add the scores to `report`.

        Does nothing if the point has no evaluations. The last snapshot of the run is also scored on
        the test set. If `save_weights` is set, its weights are saved as weights.pt. If the run has
        a moving average of the weights, it is saved in their place.
        """
        strategy = self._strategy
        snapshots = strategy.finish()
        if not self._point.measurement.evaluations:
            return
        evaluation = Evaluation(self._module, strategy.held_weights, self._device, strategy.moving)
        try:
            if watched is not None and snapshots:
                watched.check(trainer, strategy)
            self._score(report, snapshots, evaluation)
        except Exception as error:  # code from outside may raise anything
            is_ours = self._point.model.is_ours and self._point.data.is_ours
            if is_ours or not snapshots or isinstance(error, OSError | MemoryError):
                raise
            last = snapshots[-1]
            evaluation.load(last.weights[0], last.statistics)
            save_weights(self._module, self._folder / "weights.pt")
            message = "evaluation failed after training, whose weights are in weights.pt: "
            raise RuntimeError(f"{message}{type(error).__name__}: {error}") from error

    def _score(
        self, report: TrainingReport, snapshots: list[Snapshot], evaluation: Evaluation
    ) -> None:
        data = self._data
        ends = self._strategy.real_seconds(snapshots)
        for snapshot, real_seconds in zip(snapshots, ends, strict=True):
            last = snapshot.samples >= self._budget.samples
            scores = evaluation.scores(snapshot, data.validation if last else data.curve)
            report.scores.append(_scored(snapshot, real_seconds, scores))
        if snapshots and snapshots[-1].samples >= self._budget.samples:
            scores = evaluation.scores(snapshots[-1], data.test)
            report.test = _scored(snapshots[-1], ends[-1], scores)
            if self._point.save_weights:
                save_weights(self._module, self._folder / "weights.pt")


def _name_of(part: object) -> str:
    """Return the name of the class of an optimizer or a scheduler."""
    return part.name if isinstance(part, RemoteOptimizer) else type(part).__name__


def _scored(snapshot: Snapshot, real_seconds: float, scores: list[Score]) -> SnapshotScore:
    score, *of_average = scores
    return SnapshotScore(
        **vars(score),
        samples=snapshot.samples,
        updates=snapshot.updates,
        seconds=snapshot.seconds,
        real_seconds=real_seconds,
        averaged_top1=of_average[0].top1 if of_average else None,
    )
