"""A worker that applies gradients to weights of its own, as a Lightning strategy."""

import itertools
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from pytorch_lightning import Trainer
from torch import Tensor

from paceline.engine.flat_sgd import FlatSGD
from paceline.engine.flat_weights import FlatWeights
from paceline.engine.snapshot import Snapshot, flatten
from paceline.engine.step_numbers import StepNumbers
from paceline.exchange.find_collective import collective
from paceline.exchange.process_group import draw_number
from paceline.scheme.rule import Adopt, Apply, Mean, Message, PairMean, Push, drive
from paceline.wall_clock.pair_link import pair_link
from paceline.wall_clock.rule_strategy import AbstractRuleStrategy
from paceline.wall_clock.server_link import ServerLink

_runs = itertools.count()  # of this process group


class OwnWeightsStrategy(AbstractRuleStrategy):
    """Without servers, a snapshot is the mean of the workers' weights, each as it was when it first
    had so many samples behind it, over all workers; with servers, of what those hold.
    """

    by = "a worker with weights of its own"

    def _connect(self, trainer: Trainer) -> FlatWeights:
        size, device = sum(weight.numel() for weight in self.held), self.root_device
        gradient = torch.zeros(size, dtype=self.held[0].dtype, device=device)
        self._pairs = pair_link(self.scheme, self.plan)
        weights = self._pairs.computed if self._pairs else torch.zeros_like(gradient)
        flat = FlatWeights(self.held, weights, gradient)
        self._own = self._pairs.weights if self._pairs else flat.weights
        self._sgd = FlatSGD(self._own, self.plan.segments)
        self._mean = torch.empty(size, dtype=weights.dtype)
        self._num_means = 0  # over all workers
        self._kept: list[Snapshot] = []
        self._servers = ServerLink(self.scheme, self.plan) if self.scheme.servers else None
        if self._servers is not None:
            self._servers.begin(flat.weights.cpu())
            first = self._servers.wire.weights
        else:
            first = flat.weights.cpu()
            dist.broadcast(first, 0)
        flat.weights.copy_(first)
        draw = partial(draw_number, f"steps of run {next(_runs)}")
        self._numbers = StepNumbers(self.scheme, self.workers, draw)
        self.numbers = [self._numbers.next()]
        trainer.should_stop = self._ended
        if self._pairs is not None:
            self._own.copy_(first)
            self._pairs.begin()
        return flat

    def on_train_end(self) -> None:
        super().on_train_end()
        if self._pairs is not None:
            self._pairs.finish()
            self._flat.adopt(self._own)

    @property
    def updates(self) -> int:
        return self.steps

    @property
    def samples(self) -> int:
        return self.plan.samples_at(min(self.numbers[-1], self._num_steps))

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        if self._servers is not None:
            return self._servers.bytes_exchanged
        if self._pairs is not None:
            return self._pairs.bytes_exchanged
        volume = collective("native").volumes(self.workers, self._mean.numel())[dist.get_rank()]
        return volume.in_bytes(self._num_means * self._mean.element_size())

    @property
    def averages(self) -> list[tuple[int, int]]:
        return self._pairs.averages if self._pairs else []

    def finish(self) -> list[Snapshot]:
        """Snapshot n is worker n modulo workers' to evaluate."""
        if self._servers is not None:
            return self._servers.finish()
        means = [self._mean_of(kept) for kept in self._kept]
        return means[dist.get_rank() :: self.workers]

    def _go_on(self) -> None:
        self.numbers.append(self._numbers.next())
        if self._ended:
            assert self.lightning_module is not None
            self.lightning_module.trainer.should_stop = True
            drive(self.scheme.end(self._flat.weights, self.steps), self._carry_out)
        if self._servers is None:
            for samples in self.plan.passed(len(self._kept), self.numbers[-1]):
                self._keep_snapshot(samples)

    @property
    def _ended(self) -> bool:
        return self.plan.ends_before(self.numbers[-1])

    def _carry_out(self, message: Message) -> Tensor | None:
        if isinstance(message, Apply):
            self._apply(message.gradient)
            return self._flat.weights
        if isinstance(message, Adopt):
            self._flat.weights.copy_(message.weights)
            return None
        if isinstance(message, Mean):
            return self._mean_over_workers(message.value)
        if isinstance(message, PairMean):
            assert self._pairs is not None
            self._pairs.average(message.partner)
            self._flat.adopt(self._own)
            return None
        assert isinstance(message, Push)
        assert self._servers is not None
        self._servers.wire.gradient.copy_(message.value)
        self._servers.push(self._statistics)
        return self._servers.wire.weights.to(self.root_device)

    def _apply(self, gradient: Tensor) -> None:
        rate = self._learning_rate
        with self._pairs.step() if self._pairs else nullcontext():
            factor = rate.factor(self.plan.samples_at(self.numbers[-1])) if rate else 1.0
            self._sgd.step(gradient.to(self._own.device), factor)
            self._flat.adopt(self._own)

    def _mean_over_workers(self, value: Tensor) -> Tensor:
        self._mean.copy_(value)
        dist.all_reduce(self._mean)
        self._num_means += 1
        return self._mean.div_(self.workers).to(self.root_device)

    def _keep_snapshot(self, samples: int) -> None:
        """Copies: the only work of evaluation inside the training clock."""
        statistics = torch.empty(self.plan.num_statistics, dtype=self.held[0].dtype)
        self._kept.append(
            Snapshot(
                samples=samples,
                updates=self.plan.updates_at(samples),
                seconds=self._clock.seconds(),
                weights=self._flat.weights.to("cpu", copy=True),
                statistics=flatten(self._statistics, statistics),
            )
        )

    def _mean_of(self, kept: Snapshot) -> Snapshot:
        """Of all workers' n-th; the clock is that of the last who came. All must call this."""
        for vector in (kept.weights, kept.statistics):
            dist.all_reduce(vector)
            vector.div_(self.workers)
        seconds = torch.tensor(kept.seconds, dtype=torch.float64)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return Snapshot(kept.samples, kept.updates, float(seconds), kept.weights, kept.statistics)
