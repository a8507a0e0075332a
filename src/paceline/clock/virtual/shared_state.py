"""Weights and optimizer state of workers that apply updates themselves, shared while equal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.clock.flat_optimizer import AbstractFlatOptimizer, Numbers, flat_optimizer
from paceline.clock.moving_average import MovingAverage, scored_weights
from paceline.clock.run_spec import RunSpec
from paceline.clock.segment import Segment
from paceline.clock.snapshot import Snapshot
from paceline.clock.virtual.buffers import Buffer, BufferPool
from paceline.clock.virtual.virtual_worker import VirtualWorker


class RunningMean:
    """Mean in a single vector for any number of vectors; exact if all are equal."""

    def __init__(self) -> None:
        self.count = 0
        self.value = torch.empty(0)

    def add(self, vector: Tensor, times: int = 1) -> None:
        """Add `vector` with the weight `times`."""
        self.count += times
        if self.count == times:
            self.value = vector.clone()
        else:
            self.value.lerp_(vector, times / self.count)


class SharedState:
    """Weights, optimizer state and moving average of all workers in `holders`."""

    def __init__(
        self,
        weights: Buffer,
        optimizer: AbstractFlatOptimizer,
        average: MovingAverage | None,
        holders: set[int],
    ) -> None:
        self.weights, self.optimizer = weights, optimizer
        self.average, self.holders = average, holders

    @property
    def scored(self) -> Tensor:
        """A copy of the weights, and of their moving average if there is one: [1 or 2, n]."""
        return scored_weights(self.weights.vector, self.average)


class SharedStates:
    """States of all workers.

    `of[worker]`: state of a worker. All workers begin with one state, or with a copy each if
    `shared` is False. `averaged`: False if moving averages are taken elsewhere.
    """

    def __init__(
        self,
        pool: BufferPool,
        weights: Tensor,
        segments: Sequence[Segment],
        run: RunSpec,
        *,
        shared: bool,
        averaged: bool,
    ) -> None:
        self._pool = pool
        first = pool.copy(weights)
        average = run.average_of([first.vector]) if averaged else None
        optimizer = flat_optimizer(first.vector, segments)
        state = SharedState(first, optimizer, average, set(range(run.num_workers)))
        self.of = [state] * run.num_workers
        self._kept: dict[int, Buffer] = {}  # weights of steps under way, if they have changed since
        for worker in range(0 if shared else run.num_workers - 1):
            self._split(state, {worker})

    def begin(self, worker: int) -> Buffer:
        """Return the weights on which the worker computes its next step."""
        if (kept := self._kept.pop(worker, None)) is not None:
            self._pool.release(kept)
        return self.of[worker].weights

    def keep(self, worker: int) -> Buffer:
        """Copy the weights of a step under way, which are about to change.

        Returns the copy, which is valid until the worker's next step begins.
        """
        if worker not in self._kept:
            self._kept[worker] = self._pool.copy(self.of[worker].weights.vector)
        return self._kept[worker]

    def apply(
        self, workers: set[int], gradient: Tensor, factor: float, numbers: Numbers | None = None
    ) -> None:
        """Apply one gradient for all these workers, once for those that share a state.

        `factor` multiplies the rates. `numbers`: of the optimizer's options; None: as before.
        """
        for state in self._of_exactly(workers):
            state.optimizer.step(gradient, factor, numbers)

    def take_in(self, workers: set[int], images: int) -> None:
        """Take the weights of these workers into their moving averages, if they have any.

        `images`: of all workers together, since the last call for these.
        """
        for state in self._of_exactly(workers) if self.of[0].average else ():
            assert state.average is not None
            state.average.update([state.weights.vector], images)

    def hold(self, worker: int, weights: Tensor) -> None:
        """Copy `weights` to the worker; its optimizer's state does not change."""
        self._own(worker).copy_(weights)

    def average(self, worker: int, sent: Tensor) -> Tensor:
        """Replace the worker's weights by the mean of them and `sent`.

        Returns `sent`, which then holds the mean's difference from what it held.
        """
        mean = self._own(worker).add_(sent).mul_(0.5)
        return sent.neg_().add_(mean)

    def add(self, worker: int, change: Tensor) -> None:
        """Add `change` to the worker's weights."""
        self._own(worker).add_(change)

    def mean(self) -> Tensor:
        """Return the mean of all workers' weights, as a new vector."""
        mean = RunningMean()
        for state in self._distinct(range(len(self.of))):
            mean.add(state.weights.vector, len(state.holders))
        return mean.value

    def _own(self, worker: int) -> Tensor:
        """Return the worker's weights, which no other worker shares from now on."""
        state = self.of[worker]
        own = state if state.holders == {worker} else self._split(state, {worker})
        return own.weights.vector

    def _of_exactly(self, workers: set[int]) -> Iterator[SharedState]:
        """Yield the states of these workers, which no other worker shares from now on."""
        for state in self._distinct(sorted(workers)):
            chosen = state.holders & workers
            yield state if chosen == state.holders else self._split(state, chosen)

    def _distinct(self, workers: Iterable[int]) -> list[SharedState]:
        return list(dict.fromkeys(self.of[worker] for worker in workers))

    def _split(self, state: SharedState, workers: set[int]) -> SharedState:
        """Give these workers a copy of the state that they have shared until now."""
        weights = self._pool.copy(state.weights.vector)
        average = state.average.fork() if state.average else None
        optimizer = state.optimizer.fork(weights.vector)
        own = SharedState(weights, optimizer, average, set(workers))
        state.holders -= workers
        for worker in workers:
            self.of[worker] = own
        return own


class _Means(NamedTuple):
    weights: RunningMean
    statistics: RunningMean


class SnapshotMean:
    """Snapshots in the making; one is complete when all workers have reached its samples."""

    def __init__(self, run: RunSpec, states: SharedStates) -> None:
        self.snapshots: list[Snapshot] = []
        self.diverged = False
        self._run, self._states = run, states
        self._num_passed = [0] * run.num_workers  # snapshots, by worker
        self._means: dict[int, _Means] = {}  # by samples

    def add(self, workers: Sequence[VirtualWorker], now: float) -> None:
        """Add the weights of workers that have just finished a step to the snapshots they reach."""
        passing: dict[int, list[VirtualWorker]] = {}
        for worker in workers:
            passed = self._run.passed(self._num_passed[worker.index], worker.next_number)
            self._num_passed[worker.index] += len(passed)
            for samples in passed:
                passing.setdefault(samples, []).append(worker)
        for samples, passed_by in sorted(passing.items()):
            self._add(samples, passed_by)
            if self._means[samples].weights.count == self._run.num_workers:
                self._complete(samples, now)

    def _add(self, samples: int, workers: Sequence[VirtualWorker]) -> None:
        means = self._means.setdefault(samples, _Means(RunningMean(), RunningMean()))
        states = Counter(self._states.of[worker.index] for worker in workers)
        for state, num_workers in states.items():
            means.weights.add(state.scored, num_workers)
        for worker in workers:
            means.statistics.add(worker.statistics.vector)

    def _complete(self, samples: int, now: float) -> None:
        weights, statistics = (mean.value for mean in self._means.pop(samples))
        updates = self._run.updates_at(samples)
        self.snapshots.append(Snapshot(samples, updates, now, weights, statistics))
        self.diverged = not bool(weights.isfinite().all())
