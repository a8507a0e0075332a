"""Workers that hold weights of their own on the virtual clock: replicas, steps, snapshots."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from paceline.engine.run_spec import RunPlan
from paceline.engine.snapshot import Snapshot
from paceline.engine.step_numbers import StepNumbers
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile
from paceline.virtual_clock.buffers import Buffer, BufferPool
from paceline.virtual_clock.events import EventQueue
from paceline.virtual_clock.gathering import Gathering
from paceline.virtual_clock.pairing import Pairing
from paceline.virtual_clock.replicas import Replicas
from paceline.virtual_clock.worker import VirtualWorker

Applying = tuple[VirtualWorker, Tensor]  # and the gradient that its own optimizer applies


class OwnWeights:
    """`pairing`: where workers ask each other for means; `paired(worker)` is called when one has
    been answered. `recycled` False: a copy for each worker.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        plan: RunPlan,
        weights: Tensor,
        *,
        workers: Sequence[VirtualWorker],
        profile: ClusterProfile,
        events: EventQueue,
        pool: BufferPool,
        recycled: bool,
        paired: Callable[[VirtualWorker], None],
    ) -> None:
        self._scheme, self._plan, self._workers, self._events = scheme, plan, workers, events
        self._accounting = Accounting(scheme, plan.workers)
        self._replicas = Replicas(pool, weights, plan.segments, plan.workers, shared=recycled)
        self._gathering = Gathering(plan)
        draw = itertools.count().__next__
        self._numbers = [StepNumbers(scheme, plan.workers, draw) for _ in workers]
        for worker, numbers in zip(workers, self._numbers, strict=True):
            worker.numbers = [numbers.next()]
        self._finished = 0  # steps of all workers
        self.pairing = Pairing(
            self._replicas, workers, profile=profile, events=events, answered=paired
        )

    def begin(self, worker: VirtualWorker) -> Buffer:
        """What it computes on now."""
        return self._replicas.begin(worker.index)

    def ended(self, worker: VirtualWorker) -> bool:
        """Whether no step of the run is left for it."""
        return self._plan.ends_before(worker.number)

    def finish(self, workers: Sequence[VirtualWorker]) -> None:
        """Each of these has taken a step."""
        self._finished += len(workers)
        for worker in workers:
            worker.numbers.append(self._numbers[worker.index].next())
        if not self._scheme.servers:
            self._gathering.add(workers, self._replicas, self._events.now)

    def hold(self, worker: VirtualWorker, weights: Tensor) -> None:
        self._replicas.hold(worker.index, weights)

    def apply(self, applying: Sequence[Applying]) -> list[tuple[VirtualWorker, Any]]:
        """By the workers' own optimizers; each is answered with its weights after that."""
        together: dict[int, tuple[Tensor, set[int]]] = {}
        for worker, gradient in applying:
            together.setdefault(id(gradient), (gradient, set()))[1].add(worker.index)
        rate = self._plan.learning_rate
        for gradient, workers in together.values():
            number = self._workers[min(workers)].number
            factor = rate.factor(self._plan.samples_at(number)) if rate else 1.0
            self._replicas.apply(workers, gradient, factor)
        of = self._replicas.of
        return [(worker, of[worker.index].weights.vector) for worker, _ in applying]

    @property
    def updates(self) -> int:
        """Of each worker's weights, on average."""
        return self._finished // self._plan.workers

    @property
    def samples(self) -> int:
        """Over all workers, behind the weights of all."""
        whole = self.updates * self._plan.workers
        return self._plan.samples_at(whole if self._accounting.equal_steps else self._finished)

    @property
    def diverged(self) -> bool:
        return self._gathering.diverged

    @property
    def snapshots(self) -> list[Snapshot]:
        return self._gathering.snapshots

    @property
    def num_snapshots(self) -> int:
        return len(self._gathering.snapshots)

    @property
    def statistics(self) -> list[Tensor]:
        return [worker.statistics.vector for worker in self._workers]

    def mean(self) -> Tensor:
        """Of the weights of all workers, as a vector of its own."""
        return self._replicas.mean()
