"""Lightning strategy of a worker that follows a scheme's rule on real processes.

Lightning's world size is 1 in each worker. With more, its loop broadcasts a SIGTERM flag every step
(Lightning PR 20825 and 21487), and an asynchronous scheme would run in lockstep.
"""

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.clock.flat_weights import FlatWeights, held_weights
from paceline.clock.reports import TrainingClock
from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.snapshot import Snapshot, statistics_of
from paceline.clock.split.split_worker import SplitWorker
from paceline.clock.training_strategy import RemoteOptimizer, keep_metrics_apart
from paceline.clock.vector_spec import VectorSpec
from paceline.clock.wall.pair_link import pair_link
from paceline.clock.wall.rule_links import OwnWeightsLinks, ServedLinks
from paceline.clock.wall.wall_links import PushLink
from paceline.clock.wall.wall_strategy import AbstractWallStrategy
from paceline.errors import SettingError
from paceline.exchange.liveness import rest
from paceline.exchange.process_group import count_workers, draw_number, run_store, worker_index
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme, Step, WorkerView, next_message
from paceline.timing.step_times import Pace


class RuleStrategy(AbstractWallStrategy, SingleDeviceStrategy):
    """Strategy of one worker: ranks 0..workers-1 of the process group train, servers follow.

        chosen = RuleStrategy(LocalSGD(period=8), RunSpec(2, batch_size=32, num_steps=1000))
        Trainer(strategy=chosen, devices=1, plugins=[LightningEnvironment()], max_epochs=-1)

    Processes of servers `join` the group and call `paceline.clock.wall.server.serve(scheme)`. After
    the end of the run, every worker must call `finish()`, which waits for the others. Raises
    SettingError for a `run` without a batch_size and an end. `clock`: training clock for the times
    of snapshots, if there are no servers. `pace`: emulates the worker's accelerator. `split`: the
    first process of a split worker, which holds all its weights, and sends them to the others after
    each step.
    """

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
        self.scheme, self._counts = scheme, Counts(scheme, run.num_workers)
        self.num_batches = most_steps(self._counts, run)
        self._thread = ThreadPoolExecutor(1, "beside a step")
        self._beside: Future[None] | None = None
        self._begun_beside = -1  # number of steps before the one beside which it began

    def setup(self, trainer: Trainer) -> None:
        """Move weights and gradients into one vector each, and connect to the other processes."""
        super().setup(trainer)
        keep_metrics_apart(self.trained_module())
        if trainer.state.fn != TrainerFn.FITTING:
            return
        by = "a worker with weights of its own" if self.scheme.own_weights else "a parameter server"
        self.check_honoured(trainer, by, again=hasattr(self, "_links"))
        own = self.optimizers[0]
        of_all = own if self.split is None else self.split.whole_optimizer(self.precision_plugin)
        options, statistics = LiveOptions(own), statistics_of(self.whole_module, self.moving)
        self._weights, vectors = held_weights(of_all, self.scheme, statistics, options)
        self._schedules = Schedules(trainer.lr_scheduler_configs, options, self.run)
        self._links = links = self._connect(vectors, options, statistics)
        links.begin()
        trainer.should_stop = not links.has_step
        self.step_numbers, self.averages = links.step_numbers, links.averages
        zero = links.flat.zero_gradient if self.split is None else self.split.zero_gradient
        remote: Optimizer = RemoteOptimizer(own, zero, self.step)
        self.optimizers = [remote]
        self._hand_out()

    def _connect(
        self, vectors: VectorSpec, options: LiveOptions, statistics: Sequence[Tensor]
    ) -> ServedLinks | OwnWeightsLinks:
        scheme, run, device, weights = self.scheme, self.run, self.root_device, self._weights
        if scheme.servers:
            self.push = PushLink(scheme, run, vectors, options.read, statistics, device)
        if not self.scheme.own_weights:
            assert self.push is not None
            wire = self.push.wire
            flat = FlatWeights(weights, wire.weights, wire.gradient)
            return ServedLinks(flat, run, self._counts, self.push)
        pair = pair_link(scheme, run, vectors)
        gradient = torch.zeros(vectors.num_weights, dtype=weights[0].dtype, device=device)
        computed = pair.computed if pair else torch.zeros_like(gradient)
        return OwnWeightsLinks(
            FlatWeights(weights, computed, gradient),
            run,
            vectors,
            self._counts,
            push=self.push,
            pair=pair,
            options=options.read,
            statistics=statistics,
            clock=self._clock,
        )

    def on_train_start(self) -> None:
        super().on_train_start()
        self._resume_schedules()
        self.counted = count_workers(self.run.num_workers, is_worker=True)
        self._begin_step()

    def step(self) -> None:
        """Take one step: from a batch to new weights.

        Lightning's loop has drawn the batch, and called the module's training_step and backward.
        Now it calls the step of the optimizer, which is this function (see RemoteOptimizer). The
        gradients of all weights are views of one vector, `flat.gradient`.
        """
        links, flat, run = self._links, self._links.flat, self.run
        if self.split is None:
            flat.gather_gradient()  # those that hooks have replaced, before the emulated step ends
        self.wait_for_pace()
        before = time.perf_counter()
        if self.split is not None:  # then the processes of the worker communicate for it
            self.split.gather_gradient()
            flat.gather_gradient()
        rest()  # from here on this process may wait for others

        # The rule says what the worker does with its gradient. Under async_parameter_server it
        # yields Push(gradient): `links.push` sends the gradient to all servers, which apply it at
        # once by `Server._take`, and returns the weights in their answers. It then yields
        # Adopt(weights): `links.adopt` copies them into `flat.weights`, on which the network
        # computes, unless they are there already, in memory that worker and servers share.
        progress = run.progress(links.step_numbers[-1] if links.step_numbers else 0)
        worker, workers = worker_index(), run.num_workers
        view = WorkerView(flat.gradient, flat.weights, worker, workers, self.num_steps, progress)
        self._carry_out(self.scheme.step(view))

        self.num_steps += 1
        links.finish_step()
        if not links.has_step:  # by the servers' answers, or as all steps of the run are taken
            self._trainer.should_stop = True
            self._carry_out(self.scheme.end(flat.weights, self.num_steps))
        links.keep_snapshots()
        self._hand_out()
        self.seconds_communicating += time.perf_counter() - before
        self._begin_step()

    def _carry_out(self, rule: Step) -> None:
        """Carry out each message that a rule yields, and send it the answer."""
        answer = None
        while (message := next_message(rule, answer)) is not None:
            answer = getattr(self._links, message.verb)(*vars(message).values())

    def _hand_out(self) -> None:
        if self.split is not None:
            self.split.hand_out(not self._trainer.should_stop)

    def _begin_step(self) -> None:
        """Set options for the next step, and start its pace and what the rule does beside it."""
        self._schedules.set(self.samples // self.run.batch_size)
        idle = self._beside is None or self._beside.done()
        if idle:
            self.settle()  # raises its error
        if idle and not self._trainer.should_stop and self._begun_beside < self.num_steps:
            self._begun_beside, run = self.num_steps, self.run
            beside = self.scheme.beside(worker_index(), run.num_workers, self.num_steps, run.seed)
            if beside is not None:
                self._beside = self._thread.submit(self._carry_out, beside)
        self.begin_anew()

    def settle(self) -> None:
        """Wait for what the rule does beside steps."""
        if self._beside is not None:
            self._beside.result()

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return self._weights

    @property
    def samples(self) -> int:
        return self._links.samples

    @property
    def updates(self) -> int:
        """Updates of this worker's weights, or of server 0's when this worker last read them."""
        if self.scheme.own_weights:
            return self.num_steps
        assert self.push is not None
        return self.push.wire.versions[0]

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._links.bytes_exchanged

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "communicating": self.seconds_communicating,
            "beside": self._begun_beside,
            "links": self._links.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.seconds_communicating, self._begun_beside = state["communicating"], state["beside"]
        self._links.load_state(state["links"])

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

    def on_train_end(self) -> None:
        super().on_train_end()
        self.settle()
        self._links.finish()

    def finish(self) -> list[Snapshot]:
        snapshots = self._links.leave()
        self._share_files()  # others may wait for a step of this worker until it has left
        return snapshots

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


def most_steps(counts: Counts, run: RunSpec) -> int:
    """Return the largest number of steps of one worker in a run that has an end."""
    assert run.num_steps is not None
    if counts.scheme.own_weights and counts.scheme.equal_steps:
        return run.num_steps // counts.num_workers
    return counts.most_batches(run.num_steps)


class ShardStrategy(AbstractWallStrategy, SingleDeviceStrategy):
    """Strategy of a process of a split worker that is not its first. After each step it sends its
    part of the gradient to the first, which drives the rule, and receives its part of the weights.
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
