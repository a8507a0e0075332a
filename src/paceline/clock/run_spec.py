"""Specification of a run, which is the same for the wall and the virtual clock, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paceline.model.learning_rate import LearningRate
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme
from paceline.timing.split_plan import SplitStep
from paceline.timing.workload import AbstractWorkload

if TYPE_CHECKING:  # torch takes seconds
    from paceline.data.shuffle import DataTraffic


@dataclass(frozen=True)
class RunSpec:
    """Specification of a run, for the strategies of both clocks.

    `batch_size`: images per worker and step; 0 if a DataLoader sets it (virtual clock only).
    `num_steps`: steps of all workers together; None if the run has no end (virtual clock only).
    `snapshot_samples`: ascending numbers of samples over all workers after which to keep the
    weights. `learning_rate`: None for the optimizer's own rate. `seed`: seed of the rule's random
    numbers. `sample_decay`: decay, per sample, of a moving average of the weights, which snapshots
    then contain as well; None for no average. `epoch_samples`: samples of a pass over the data, by
    which schedulers count epochs; None if they count the Trainer's. `server_seconds`: least time of
    a server for a push, and `timeout_seconds`: longest wait for another process, both on the wall
    clock only. `servers_on_gpus`: True if servers and workers share GPUs of one machine, by whose
    memory they exchange weights.

    On a modelled cluster: `workload`: network whose messages are sent; None for the trained one.
    `traffic`: movement of data among workers, which takes time; None if there is none.
    `split_step`: messages inside workers that are split over several processes; their gradients
    stay those of whole workers; None if workers are not split.
    """

    num_workers: int
    batch_size: int = 0
    num_steps: int | None = None
    snapshot_samples: Sequence[int] = ()
    learning_rate: LearningRate | None = None
    seed: int = 0
    sample_decay: float | None = None
    epoch_samples: int | None = None
    server_seconds: float = 0
    timeout_seconds: float = 600
    servers_on_gpus: bool = False
    workload: AbstractWorkload | None = None
    traffic: DataTraffic | None = None
    split_step: SplitStep | None = None

    @property
    def epoch_batches(self) -> float | None:
        """Batches of all workers in a pass over the data; None if only the Trainer knows."""
        return self.epoch_samples / self.batch_size if self.epoch_samples else None

    def ends_before(self, number: int) -> bool:
        """Return True if the run has no step of this number."""
        return self.num_steps is not None and number >= self.num_steps

    def within(self, number: int) -> int:
        """Return the number of a step, at most the number of steps of the run."""
        return number if self.num_steps is None else min(number, self.num_steps)

    def samples_at(self, number: int) -> int:
        """Return the samples over all workers before the step of this number."""
        return number * self.batch_size

    def updates_at(self, samples: int) -> int:
        """Return the updates of each worker's own weights, on average."""
        return samples // (self.num_workers * self.batch_size)

    def passed(self, num_kept: int, number: int) -> list[int]:
        """Return the samples of the snapshots due before this step, but the first `num_kept`."""
        before = self.samples_at(number)
        return [samples for samples in self.snapshot_samples[num_kept:] if samples <= before]

    def progress(self, number: int) -> float:
        """Return the share of the run before the step of this number; 0 if it has no end."""
        return number / self.num_steps if self.num_steps else 0.0

    def rate_factor(self, samples: int, update_batch_size: int | None = None) -> float:
        """Return the factor on the optimizer's rates after `samples`; see LearningRate.factor."""
        rate = self.learning_rate
        return rate.factor(samples, update_batch_size) if rate else 1.0


def run_of_servers(scheme: AbstractScheme, run: RunSpec) -> RunSpec:
    """Return the run's specification for servers: without the settings of modelled clusters and, if
    workers apply gradients themselves, without an end and a learning rate, so that a server's
    answer always allows another step.
    """
    run = replace(run, workload=None, traffic=None, split_step=None)
    return replace(run, num_steps=None, learning_rate=None) if scheme.own_weights else run


class StepNumbers:
    """Numbers of one worker's steps among the steps of all workers. A number times the batch size
    is the number of samples before the step. If workers wait for each other, all of them take
    equally many steps. Otherwise they draw rounds of `steps_per_push` steps from a common budget,
    and faster workers get more. `draw()`: number of rounds that all workers have drawn before.
    """

    def __init__(self, counts: Counts, draw: Callable[[], int]) -> None:
        self._round = None if counts.scheme.equal_steps else counts.steps_per_push
        self._workers, self._draw = counts.num_workers, draw
        self._taken = 0
        self._first = 0  # of the round under way

    def state(self) -> dict[str, int]:
        return {"taken": self._taken, "first": self._first}

    def load_state(self, state: Mapping[str, int]) -> None:
        self._taken, self._first = state["taken"], state["first"]

    def next(self) -> int:
        """Return the number of the worker's next step."""
        taken, self._taken = self._taken, self._taken + 1
        if self._round is None:
            return taken * self._workers
        within = taken % self._round
        if within == 0:
            self._first = self._draw() * self._round
        return self._first + within
