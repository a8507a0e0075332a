"""Lightning strategies that drive a scheme's rule on real processes.

Lightning's world size is 1 in each worker. With more, its loop broadcasts a SIGTERM flag every step
(Lightning PR 20825 and 21487), and an asynchronous scheme would run in lockstep.
"""

import json
import time
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.trainer.states import TrainerFn
from torch import nn
from torch.optim import Optimizer

from paceline.clock.flat_weights import FlatWeights, held_weights
from paceline.clock.links import AbstractLinks, RuleDriver, complete
from paceline.clock.reports import TrainingClock
from paceline.clock.run_spec import RunSpec, VectorSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.snapshot import Snapshot, statistics_of
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.training_strategy import RemoteOptimizer, keep_metrics_apart
from paceline.clock.wall.pair_link import Beside
from paceline.clock.wall.wall_links import PushLink
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.errors import SettingError
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import count_workers, draw_number, run_store, worker_index
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme
from paceline.timing.pace import Pace


class AbstractRuleStrategy(AbstractWallStrategy, SingleDeviceStrategy):
    """Strategy of one worker: ranks 0..workers-1 of the process group train, servers follow.

    Under torchrun, use it in `Trainer(devices=1, plugins=[LightningEnvironment()], max_epochs=-1)`;
    processes of servers `join` the group and call `paceline.clock.wall.server.serve(scheme)`. `run`
    needs a batch_size and an end; after that, every worker must call `finish()`, which waits for
    the others. `clock`: training clock for the times of snapshots, if there are no servers. `pace`:
    emulates the worker's accelerator. `split`: the first process of a split worker, which holds all
    its weights, and sends them to the others after each step.
    """

    applied_by: str  # the component that applies updates, in messages

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        *,
        device: torch.device | str = "cpu",
        clock: TrainingClock | None = None,
        pace: Pace | None = None,
        split: SplitWorker | None = None,
    ) -> None:
        super().__init__(device=device)  # pyright: ignore[reportUnknownMemberType]
        self.prepare(run, clock=clock, pace=pace, split=split)
        for name in ("batch_size", "num_steps"):
            if not getattr(run, name):
                raise SettingError(name, "real processes need a value of at least 1")
        self.scheme, self.counts = scheme, Counts(scheme, run.num_workers)
        self.num_batches = most_steps(self.counts, run)
        self._beside = Beside()
        self._begun_beside = -1  # number of steps before the one beside which it began

    def setup(self, trainer: Trainer) -> None:
        """Move weights and gradients into one vector each, and connect to the other processes."""
        super().setup(trainer)
        keep_metrics_apart(self.trained_module())
        if trainer.state.fn != TrainerFn.FITTING:
            return
        self.check_honoured(trainer, self.applied_by, again=hasattr(self, "_driver"))
        own = self.optimizers[0]
        of_all = own if self.split is None else self.split.whole_optimizer(self.precision_plugin)
        self._options, self._statistics = (
            LiveOptions(own),
            statistics_of(self.whole_module, self.moving),
        )
        held = held_weights(of_all, self.scheme, self._statistics, self._options)
        self._weights, self.vectors = held
        self._schedules = Schedules(trainer.lr_scheduler_configs, self._options, self.run)
        self._flat, links = self._connect(trainer)
        self._driver = RuleDriver(self.scheme, links, worker_index(), self.run)
        zero = self._flat.zero_gradient if self.split is None else self.split.zero_gradient
        remote: Optimizer = RemoteOptimizer(own, zero, self._step)
        self.optimizers = [remote]
        self._hand_out()

    def on_train_start(self) -> None:
        super().on_train_start()
        self._resume_schedules()
        self.counted = count_workers(self.run.num_workers, is_worker=True)
        self._begin_step()

    def state(self) -> dict[str, Any]:
        communicating = self.seconds_communicating
        return {**super().state(), "communicating": communicating, "beside": self._begun_beside}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.seconds_communicating, self._begun_beside = state["communicating"], state["beside"]

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        fits = self._trainer.state.fn == TrainerFn.FITTING
        if fits and str(checkpoint_path) != str(self.part):
            message = "one worker's file does not contain a run; `paceline train` resumes runs"
            raise SettingError("ckpt_path", message)
        return super().load_checkpoint(checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load the module, or only its buffers to resume: weights come from `load_state`."""
        if self._trainer.state.fn != TrainerFn.FITTING:
            return super().load_model_state_dict(checkpoint, strict)
        module, saved = self.whole_module, checkpoint["state_dict"]
        names = [*(name for name, _ in module.named_buffers()), *self.moving]
        module.load_state_dict({name: saved[name] for name in names if name in saved}, strict=False)

    def settle(self) -> None:
        self._beside.wait()

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return self._weights

    def finish(self) -> list[Snapshot]:
        snapshots = self._leave()
        self._share_files()  # others may wait for a step of this worker until it has left
        return snapshots

    @abstractmethod
    def _leave(self) -> list[Snapshot]:
        """Stop taking part in other workers' steps; return the snapshots that this worker
        evaluates.
        """

    def _share_files(self) -> None:
        """Give each worker's callbacks the paths of the checkpoints that the first worker wrote, so
        that Lightning finds the best one in every worker. All workers must call this.
        """
        callbacks = self._trainer.checkpoint_callbacks
        kept = [each for each in callbacks if isinstance(each, ModelCheckpoint)]
        if not kept:
            return
        name = f"files kept in fit {draw_number(f'fits of process {self._rank}')}"
        if self.is_global_zero:
            paths: list[Any] = [(each.best_model_path, each.last_model_path) for each in kept]  # pyright: ignore[reportUnknownMemberType]
            run_store().set(name, json.dumps(paths))
        for each, paths in zip(kept, json.loads(run_store().get(name)), strict=True):
            each.best_model_path, each.last_model_path = paths

    @abstractmethod
    def _connect(self, trainer: Trainer) -> tuple[FlatWeights, AbstractLinks]:
        """Connect to the others and adopt the first weights; return the weights and the links."""

    def _push_link(self, vectors: VectorSpec) -> PushLink:
        read, statistics = self._options.read, self._statistics
        return PushLink(self.scheme, self.run, vectors, read, statistics, self.root_device)

    @abstractmethod
    def _finish_step(self) -> None:
        """Continue with the next step, or stop the Trainer if there is none."""

    def _step(self) -> None:
        """Drive the rule through one step; each communication blocks."""
        flat = self._flat
        if self.split is None:
            flat.gather_gradient()  # before the emulated step ends
        self.wait_for_pace()
        before = time.perf_counter()
        if self.split is not None:
            self.split.gather_gradient()
            flat.gather_gradient()
        progress = self.run.progress(self.step_numbers[-1] if self.step_numbers else 0)
        rest()
        complete(self._driver.step(flat.gradient, flat.weights, self.num_steps, progress))
        self.num_steps += 1
        self._finish_step()
        self._hand_out()
        self.seconds_communicating += time.perf_counter() - before
        self._begin_step()

    def _hand_out(self) -> None:
        if self.split is not None:
            self.split.hand_out(not self._trainer.should_stop)

    def _begin_step(self) -> None:
        """Set options for the next step, and start its pace and what the rule does beside it."""
        stops = self._trainer.should_stop
        self._schedules.set(self.samples // self.run.batch_size)
        if not stops and self._begun_beside < self.num_steps and self._beside.is_idle():
            self._begun_beside = self.num_steps
            process = self._driver.beside(self.num_steps)
            if process is not None:
                self._beside.begin(partial(complete, process))
        self.begin_anew()


def most_steps(counts: Counts, run: RunSpec) -> int:
    """Return the largest number of steps of one worker in a run that has an end."""
    assert run.num_steps is not None
    if counts.scheme.own_weights and counts.scheme.equal_steps:
        return run.num_steps // counts.num_workers
    return counts.most_batches(run.num_steps)


class ShardStrategy(AbstractWallStrategy, SingleDeviceStrategy):
    """Strategy of a process of a split worker that is not its first. After each step it sends its
    part of the gradient to the first process, which drives the rule, and receives its part of the
    weights.
    """

    def __init__(
        self,
        split: SplitWorker,
        run: RunSpec,
        num_batches: int,
        device: torch.device,
        pace: Pace | None,
    ) -> None:
        super().__init__(device=device)  # pyright: ignore[reportUnknownMemberType]
        self.prepare(run, pace=pace, split=split)
        self.num_batches, self._part = num_batches, split

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        own = self.optimizers[0]  # the first process has refused what cannot be
        remote: Optimizer = RemoteOptimizer(own, self._part.zero_gradient, self._step)
        self.optimizers = [remote]
        trainer.should_stop = not self._part.take()

    def on_train_start(self) -> None:
        super().on_train_start()
        self.counted = count_workers(self.run.num_workers, is_worker=False)
        self.begin_anew()

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return list(self.trained_module().parameters())

    def finish(self) -> list[Snapshot]:
        return []

    def _step(self) -> None:
        self.wait_for_pace()
        self._part.gather_gradient()
        self._trainer.should_stop = not self._part.take()
        self.num_steps += 1
        self.begin_anew()
