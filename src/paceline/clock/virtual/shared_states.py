"""Weights of all workers, optimizer state included, which are shared while they are equal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paceline.clock.flat_optimizer import AbstractFlatOptimizer, flat_optimizer
from paceline.clock.snapshot import MovingAverage
from paceline.clock.vector_spec import VectorSpec
from paceline.clock.virtual.lender import Lender


@dataclass
class RunningMean:
    """Mean in a single vector for any number of vectors; exact if all are equal."""

    count: int = 0
    value: Tensor = field(default_factory=lambda: torch.empty(0))

    def add(self, vector: Tensor, times: int = 1) -> None:
        """Add `vector` with the weight `times`."""
        self.count += times
        if self.count == times:
            self.value = vector.clone()
        else:
            self.value.lerp_(vector, times / self.count)


@dataclass(eq=False)
class SharedState:
    """Weights, optimizer state and moving average of all workers in `holders`."""

    weights: Tensor
    optimizer: AbstractFlatOptimizer
    average: MovingAverage | None
    holders: set[int]


class SharedStates:
    """States of all workers, which begin with one. `of[worker]`: state of a worker. `sample_decay`:
    that of the moving averages; None for none.
    """

    def __init__(
        self,
        weights: Tensor,
        vectors: VectorSpec,
        workers: int,
        lender: Lender,
        sample_decay: float | None,
    ) -> None:
        self._lender, self._vectors, self._sample_decay = lender, vectors, sample_decay
        first = lender.copy(weights)
        average = MovingAverage.begun([first], sample_decay)
        optimizer = flat_optimizer(first, vectors.segments)
        self.of = [SharedState(first, optimizer, average, set(range(workers)))] * workers

    def of_exactly(self, workers: Iterable[int]) -> Iterator[SharedState]:
        """Yield the states of these workers, which no other worker shares from now on."""
        workers = set(workers)
        for state in self._distinct(sorted(workers)):
            chosen = state.holders & workers
            yield state if chosen == state.holders else self._split(state, chosen)

    def own(self, worker: int) -> Tensor:
        """Return the worker's weights, which no other worker shares from now on."""
        (state,) = self.of_exactly({worker})
        return state.weights

    def mean(self) -> Tensor:
        """Return the mean of all workers' weights, as a new vector."""
        mean = RunningMean()
        for state in self._distinct(range(len(self.of))):
            mean.add(state.weights, len(state.holders))
        return mean.value

    def state(self) -> list[dict[str, Any]]:
        """Return all states for a checkpoint, not as copies."""
        return [
            {
                "weights": state.weights,
                "optimizer": state.optimizer.state(),
                "average": state.average.weights if state.average else None,
                "holders": sorted(state.holders),
            }
            for state in self._distinct(range(len(self.of)))
        ]

    def load_state(self, states: Iterable[dict[str, Any]]) -> None:
        """Continue from states whose weights belong to this object from now on."""
        for each in states:
            optimizer = flat_optimizer(each["weights"], self._vectors.segments)
            optimizer.load_state(each["optimizer"])
            average = each["average"] and MovingAverage.begun(each["average"], self._sample_decay)
            state = SharedState(each["weights"], optimizer, average, set(each["holders"]))
            for worker in state.holders:
                self.of[worker] = state

    def _distinct(self, workers: Iterable[int]) -> list[SharedState]:
        return list(dict.fromkeys(self.of[worker] for worker in workers))

    def _split(self, state: SharedState, workers: set[int]) -> SharedState:
        """Give these workers a copy of the state that they have shared until now."""
        weights = self._lender.copy(state.weights)
        average = state.average.fork() if state.average else None
        own = SharedState(weights, state.optimizer.fork(weights), average, set(workers))
        state.holders -= workers
        for worker in workers:
            self.of[worker] = own
        return own
