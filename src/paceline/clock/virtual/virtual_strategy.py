"""Lightning strategy by which one Trainer trains all workers: each batch is one worker's step, or a
wave of those of all workers that compute at one moment.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.enums import GradClipAlgorithmType
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree

from paceline.clock.flat_weights import held_weights
from paceline.clock.reports import StrategyReport
from paceline.clock.run_spec import RunSpec
from paceline.clock.schedules import LiveOptions, Schedules
from paceline.clock.snapshot import Snapshot, counters_of, flatten, statistics_of
from paceline.clock.training_strategy import (
    AbstractTrainingStrategy,
    RemoteOptimizer,
    SizedBatches,
    TrainingData,
    random_state,
    set_random_state,
)
from paceline.clock.virtual.dropout_streams import DropoutStreams
from paceline.clock.virtual.engine_choice import choose_engine
from paceline.clock.virtual.execution import Execution, WorkerVectors
from paceline.clock.virtual.message_sizes import VectorSizes
from paceline.clock.virtual.simulation import Simulation
from paceline.clock.virtual.wave_engines import AbstractEngine, EngineName, Trained, mapped
from paceline.data.batches import LazyBatches
from paceline.data.order import SampleStream, check_sampler, is_map_style
from paceline.errors import SettingError
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme, Message, WorkerView
from paceline.timing.profile import ClusterProfile, Link
from paceline.timing.step_times import StepTimes

BATCH_STEPS = {"cpu": 16, "cuda": 64}  # of a Trainer's batch that is computed by an engine
_FREE_LINK = Link(latency=0, bandwidth=math.inf)
FREE = ClusterProfile(_FREE_LINK, _FREE_LINK, None, server_seconds=0, server_bandwidth=math.inf)


class VirtualStrategy(AbstractTrainingStrategy, SingleDeviceStrategy):
    """Strategy that trains many workers on a virtual clock.

    `Trainer(strategy=VirtualStrategy(SyncAllReduce(), RunSpec(num_workers=64)))` trains any
    LightningModule with automatic optimization and one optimizer, from a DataLoader over map-style
    data.

    Every worker's gradient is computed on the weights that it would have, on the one device; time
    is modelled by `step_times` and `profile`. `run` needs a num_steps for schemes that switch in
    the middle, and a batch_size if no DataLoader sets it.

    During validation and after training the module has the shared weights and the mean of the
    workers' BatchNorm statistics; buffers of integers are the first worker's. Dropout layers have
    random numbers by worker and step; other random numbers are one stream for all workers. Raises
    SettingError before training starts for options that it does not support.

    `engine`: computes gradients one by one, in the order of virtual time, or in waves (see
    wave_engines). A batch of the Trainer is then one wave, or several that complete BATCH_STEPS
    steps together. "auto" chooses the fastest by which the module can be computed.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        *,
        step_times: StepTimes | None = None,
        profile: ClusterProfile | None = None,
        device: torch.device | str = "cpu",
        real_seconds: Callable[[], float] = time.perf_counter,
        engine: EngineName = "one_by_one",
    ) -> None:
        super().__init__(device=device)  # pyright: ignore[reportUnknownMemberType]
        check_scheme(scheme, run)
        self.scheme, self.run = scheme, run
        self._step_times = step_times or StepTimes(seed=run.seed)
        self._profile = profile or FREE
        self._draw: Callable[[int, int], Any] | None = None
        self._current_worker: WorkerVectors | None = None
        self._stepped: WorkerVectors | None = None  # last
        self._now = real_seconds
        self._snapshots_at: list[float] = []  # real seconds
        self._resumed: Mapping[str, Any] | None = None  # state of the checkpoint to go on from
        self._asked_engine: EngineName = engine
        self._engine: AbstractEngine | None = None
        self._together: Callable[[Sequence[tuple[int, int]], torch.device], Any] | None = None
        self._completed: list[tuple[int, Tensor]] = []  # see steps_of_batch
        self._batch_ends: dict[int, Callable[[], Any]] = {}  # by worker, see _defer_batch_ends

    def batches(self, draw: Callable[[int, int], Any], batch_size: int, length: int) -> LazyBatches:
        """Return at most `length` batches for `fit`; `draw(worker, n)`: n-th batch of a worker."""
        self._draw, self.run = draw, replace(self.run, batch_size=batch_size)
        return LazyBatches(length, lambda first: self._batches_left(range(first, length)))

    def process_dataloader(self, dataloader: Any) -> Any:
        trainer = self._module.trainer
        if not trainer.training or self._draw is not None:
            return dataloader
        if self._asked_engine != "one_by_one":
            message = f"{self._asked_engine} is for runs of their own: a Trainer counts steps"
            raise SettingError("cluster.engine", message)
        draw, length = draw_from(dataloader, self.run)
        return self.batches(draw, dataloader.batch_size, length)

    # called by the runner

    @property
    def samples(self) -> int:
        return self.simulation.samples

    @property
    def known_batches(self) -> int:
        if (worker := self._current_worker) is None:
            return super().known_batches
        return self.simulation.batches_behind(worker.virtual)

    def samples_before_next(self) -> int:
        self.execution.due_worker()  # goes on to the next step, and so ends the one before
        return self.samples

    @property
    def held_weights(self) -> list[nn.Parameter]:
        return self._weights

    @property
    def engine(self) -> EngineName:
        """Name of the engine that computes the gradients, once training has begun."""
        return self._engine.name if self._engine else "one_by_one"

    def training_batches(self, data: TrainingData) -> SizedBatches:
        assert self.run.num_steps is not None
        self._together = data.together
        length = Counts(self.scheme, self.run.num_workers).most_batches(self.run.num_steps)
        return self.batches(data.batch, self.run.batch_size, length)

    def steps_of_batch(self, loss: Tensor) -> Sequence[tuple[int, Tensor]]:
        return self._completed if self._engine else super().steps_of_batch(loss)

    def batches_drawn(self) -> Iterable[tuple[int, int]]:
        return ((each.index, n) for each in self.execution.workers for n in range(each.num_steps))

    def report(self, step_ends: np.ndarray, seconds_data: float) -> StrategyReport:
        return replace(self.execution.report(), engine=self.engine)

    def finish(self) -> list[Snapshot]:
        return self.execution.snapshots

    def seconds(self, real: float) -> float:
        return self.simulation.kernel.now

    def real_seconds(self, snapshots: Sequence[Snapshot]) -> list[float]:
        return self._snapshots_at

    # called by Lightning

    def setup(self, trainer: Trainer) -> None:
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        options: Any = trainer  # some of which it sets without declaring them
        if options.overfit_batches:
            message = "workers draw from all samples; a small torch.utils.data.Subset is needed"
            raise SettingError("overfit_batches", message)
        if options.reload_dataloaders_every_n_epochs:
            message = "the virtual clock draws from one DataLoader, throughout the run"
            raise SettingError("reload_dataloaders_every_n_epochs", message)
        self.check_honoured(trainer, "the virtual clock", again=hasattr(self, "execution"))
        own = self.optimizers[0]
        self._options = LiveOptions(own)
        self._statistics = statistics_of(self._module, self.moving)
        self._counters = counters_of(self._module)
        held = held_weights(own, self.scheme, self._statistics, self._options)
        self._weights, self._vectors = held
        self._trained = Trained(
            self._module,
            self._weights,
            self._statistics,
            self._counters,
            dropout=DropoutStreams(self._module, self.run.seed, self.root_device),
            precision=self.precision_plugin.train_step_context,
            clip=trainer.gradient_clip_val,
            clip_by_value=trainer.gradient_clip_algorithm == GradClipAlgorithmType.VALUE,
        )
        remote: Optimizer = RemoteOptimizer(own, self._zero_gradient, self._finish_step)
        self.optimizers = [remote]
        if self.moving:
            self._defer_batch_ends()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of the clock, which applies all updates, for a checkpoint."""
        return {
            "clock": self.execution.state(),
            "engine": self.engine,
            "snapshots_at": self._snapshots_at,
            "random": random_state(),
            "schedules": self._schedules.state(),
        }

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return what all workers share, not what one of them has, between two steps."""
        if hasattr(self, "execution") and self._current_worker is None:
            self._hold_shared()
        return super().lightning_module_state_dict()

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        (self._resumed,) = checkpoint["optimizer_states"]

    def on_train_start(self) -> None:
        super().on_train_start()
        weights, statistics = self._flat(self._weights), self._flat(self._statistics)
        configs = self._module.trainer.lr_scheduler_configs
        self._schedules = Schedules(configs, self._options, self.run)
        bounds = self._vectors.bounds(self.scheme.servers) if self.scheme.servers else []
        sizes = VectorSizes(
            num_weights=len(weights),
            shards=[last - first for first, last in bounds],
            item_bytes=weights.element_size(),
            statistics=len(statistics),
            tensors=[weight.numel() for weight in self._weights],
        )
        self.simulation = Simulation(self.scheme, self.run, self._profile, self._step_times, sizes)
        self.execution = Execution(
            self.simulation, self._vectors, weights, statistics, self._counters
        )
        for worker in self.execution.workers:
            worker.numbers = self._options.first
        asked = self._asked_engine
        if self._resumed:
            before: EngineName = self._resumed["engine"]
            if asked not in ("auto", before):
                message = f"{asked}, and the checkpoint to go on from was written with {before}"
                raise SettingError("cluster.engine", message)
            asked = before
        self._engine = choose_engine(asked, self._trained, self.execution.workers, self._batches_of)
        if self._resumed:
            self.execution.resume(self._resumed["clock"])
            self._snapshots_at = list(self._resumed["snapshots_at"])
            set_random_state(self._resumed["random"])
            self._schedules.load_state(self._resumed["schedules"])
            self._resumed = None

    def on_validation_start(self) -> None:
        super().on_validation_start()
        if hasattr(self, "execution"):
            self._hold_shared()

    def on_train_end(self) -> None:
        super().on_train_end()
        self.execution.end()
        for worker in self.execution.workers:
            self._end_batch(worker)
        self._note_snapshots()
        self._hold_shared()

    @property
    def _module(self) -> LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module

    def _hold_shared(self) -> None:
        """Give the module what all workers share, and the first one's other buffers."""
        if self._stepped is not None:
            self._trained.settle()
        shared = self.execution.shared()
        weights, statistics = shared.weights[0], shared.statistics
        first = self.execution.workers[0]
        counters = first.counters
        if self._engine is not None:  # which counts steps by their number
            pairs = zip(counters, self._engine.increments, strict=True)
            counters = [begun + step * first.num_steps for begun, step in pairs]
        self._trained.refer_to(weights, statistics, counters)

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return a copy of tensors as one vector."""
        size = sum(tensor.numel() for tensor in tensors)
        dtype = tensors[0].dtype if tensors else torch.get_default_dtype()
        return flatten(tensors, torch.empty(size, dtype=dtype, device=self.root_device))

    def _batches_left(self, numbers: range) -> Iterator[Any]:
        """Yield the batches of the workers that compute next, one at a time, until no worker may
        take another step. The clock has taken those before these `numbers`.
        """
        for _ in numbers:
            if self._engine is not None:  # it draws the batches of a wave itself
                if self.execution.due_worker() is None:
                    return
                yield ()  # None would be skipped
                continue
            batch = self._next_batch()
            if self._current_worker is None:
                return
            yield batch

    def _next_batch(self) -> Any:
        if self._current_worker is not None:
            raise RuntimeError("a batch was asked for before the step of the one before had ended")
        if self._stepped is not None:
            self._trained.settle()  # after hooks that follow a step
        worker = self._current_worker = self.execution.due_worker()
        if worker is None:
            return None
        assert self._draw is not None
        self._schedules.set(self.simulation.batches_behind(worker.virtual))
        worker.gradient = self.execution.lender.lend()
        assert worker.weights is not None
        self._end_batch(worker)
        worker.statistics = worker.statistics.clone()  # others may hold those before the step
        self._trained.refer_to(worker.weights, worker.statistics, worker.counters)
        return self._draw(worker.index, worker.num_steps)

    def _defer_batch_ends(self) -> None:
        """Call the module's on_train_batch_end for a worker when it has the weights that its step
        led to, as real workers have them at once: they update an average of these weights.
        """
        module: Any = self._module
        hook = module.on_train_batch_end
        if not callable(hook):
            return

        def defer(*arguments: Any) -> None:
            worker = self._stepped
            assert worker is not None
            self._batch_ends[worker.index] = lambda: hook(*arguments)

        module.on_train_batch_end = defer

    def _end_batch(self, worker: WorkerVectors) -> None:
        end = self._batch_ends.pop(worker.index, None)
        if end is None or worker.weights is None:
            return
        module: Any = self._module
        before, module._current_fx_name = module._current_fx_name, "on_train_batch_end"
        worker.statistics = worker.statistics.clone()
        self._trained.refer_to(worker.weights, worker.statistics, worker.counters)
        end()
        self._trained.settle()
        module._current_fx_name = before

    # waves

    def _batches_of(self, workers: Sequence[WorkerVectors]) -> Any:
        """Return the batches and dropout numbers of the workers' steps, stacked, on the device."""
        numbers = [(worker.index, worker.num_steps) for worker in workers]
        batches = self._together(numbers, self.root_device) if self._together else None
        if batches is None:
            assert self._draw is not None
            drawn = [self._draw(*each) for each in numbers]
            batches = _pytree.tree_map(lambda *each: torch.stack(each), *drawn)
            batches = mapped(lambda each: each.to(self.root_device), batches)
        return self.precision_plugin.convert_input(batches), self._trained.dropout.drawn(numbers)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        if self._engine is not None:
            return self._computed_loss()
        worker = self._current_worker
        assert worker is not None
        with self._trained.dropout.drawing(worker.index, worker.num_steps):
            return super().training_step(*args, **kwargs)

    def _computed_loss(self) -> Tensor:
        """Return the loss of the step that is due, after a wave with it has been computed."""
        worker = self.execution.due_worker()
        assert worker is not None
        assert self._engine is not None
        if worker.ahead is None:
            wave = self.execution.begin_wave(worker, alone=not self._engine.in_waves)
            self._engine.compute(wave, self._batches_of(wave))
        assert worker.ahead is not None
        return worker.ahead.loss

    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the loss of a wave, whose gradients are there, as it is."""
        if self._engine is not None:
            return closure_loss
        return super().backward(closure_loss, *args, **kwargs)

    def optimizer_step(self, optimizer: Optimizer, closure: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute waves and finish them, without what a Trainer does between gradient and step."""
        if self._engine is None:
            return super().optimizer_step(optimizer, closure, *args, **kwargs)
        self._completed = []
        loss, trainer = closure(), self._module.trainer
        self._finish_wave()
        most = BATCH_STEPS["cuda" if self.root_device.type == "cuda" else "cpu"]
        while len(self._completed) < most and not trainer.should_stop:
            if self.execution.due_worker() is None:
                break
            self._computed_loss()
            self._finish_wave()
        return loss

    def _finish_wave(self) -> None:
        """Continue all workers whose results are there, in the order of virtual time."""
        execution, finished = self.execution, self._completed
        while (worker := execution.due_worker()) and worker.ahead:
            loss = worker.ahead.loss
            self._schedules.set(self.simulation.batches_behind(worker.virtual))
            worker.numbers = self._options.read()
            execution.finish_ahead()
            finished.append((self.simulation.samples, loss))
            self._note_snapshots()
            if self.simulation.has_diverged:
                self._module.trainer.should_stop = True
                return

    # one by one

    def _zero_gradient(self) -> None:
        if self._engine is None:
            assert self._current_worker is not None
            assert self._current_worker.gradient is not None
            self._trained.begin_gradient(self._current_worker.gradient)

    def _finish_step(self) -> None:
        """Pass the gradient to the clock, which continues the worker's rule."""
        assert self._current_worker is not None
        self._trained.end_gradient()
        self._trained.settle()
        worker, self._current_worker = self._current_worker, None
        self._stepped = worker
        worker.numbers = self._options.read()
        self.execution.finish_step()
        self._note_snapshots()
        if self.simulation.has_diverged:
            self._module.trainer.should_stop = True

    def _note_snapshots(self) -> None:
        while len(self._snapshots_at) < self.execution.num_snapshots:
            self._snapshots_at.append(self._now())


def check_scheme(scheme: object, run: RunSpec) -> None:
    """Raise SettingError for a scheme or a run that the virtual clock cannot carry out."""
    workers: Any = run.num_workers  # anybody may have given anything
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise SettingError("workers", f"a whole number of at least 1 is needed, not {workers!r}")
    if not isinstance(scheme, AbstractScheme):
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: no rule")
    Counts(scheme, workers)  # refuses what cannot have so many workers
    if scheme.needs_end and run.num_steps is None:
        message = f"{type(scheme).__name__} changes its rule during a run: its length is needed"
        raise SettingError("num_steps", message)
    one = torch.ones(1)
    first = next(scheme.step(WorkerView(one, one, 0, workers, 0, 0.0)), None)
    if not isinstance(first, Message):
        name = type(first).__name__
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: {name}")


def draw_from(loader: Any, run: RunSpec) -> tuple[Callable[[int, int], Any], int]:
    """Make a function that draws worker k's n-th batch; also return the batches in one pass.

    The order is the project's: batch n * num_workers + k of a seeded stream; the loader's own
    sampler is not used. Raises SettingError("data") for loaders other than a map-style DataLoader,
    because they read in advance, before it is known which worker computes next; and for samplers
    that choose.
    """
    if not is_map_style(loader):
        name = type(loader).__name__
        message = f"the virtual clock draws from a DataLoader over map-style data, not from {name}"
        raise SettingError("data", message)
    dataset, size = loader.dataset, loader.batch_size
    if size is None:
        raise SettingError("batch_size", "the virtual clock needs a DataLoader with a batch_size")
    check_sampler(loader)
    stream = SampleStream(len(dataset), run.seed)

    def draw(worker: int, n: int) -> Any:
        indices = stream.indices((n * run.num_workers + worker) * size, size)
        return loader.collate_fn([dataset[index] for index in indices.numpy().tolist()])

    return draw, max(1, stream.num_samples // size)
