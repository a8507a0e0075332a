"""Specification of a run: workers, weights, length; and each server's part of it."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.clock.segment import Segment, plain_segment
from paceline.clock.served_weights import ServerSpec
from paceline.exchange.shard import segments, shard_bounds
from paceline.model.learning_rate import LearningRate
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme


@dataclass(frozen=True)
class RunSpec:
    """Specification of a run.

    `num_steps`: number of steps of all workers together; None if the run has no end.
    `snapshot_samples`: samples over all workers after which to keep the weights, ascending.
    `segments`: all weights in order, one segment for each group of the optimizer. `dtype`: type of
    weights and gradients, "float32" or "float64". `server_seconds`: least time of a server for a
    push, on the wall clock. `seed`: of what the rule draws. `parts`: numbers of weights, in order,
    of the parts in which pushes leave during backward, on the wall clock; none if they leave as a
    whole. `sample_decay`: of the moving average that snapshots have, too; None for no
    average. `shares`: number of weights of each server, in order; none if they are equal.
    `num_numbers`: those among the options of the optimizer, see LiveOptions; 0 if none changes.
    """

    num_workers: int
    batch_size: int
    num_steps: int | None
    snapshot_samples: Sequence[int]
    learning_rate: LearningRate | None
    segments: list[Segment]
    num_statistics: int
    dtype: str
    server_seconds: float = 0
    seed: int = 0
    parts: Sequence[int] = ()
    sample_decay: float | None = None
    shares: Sequence[int] = ()
    num_numbers: int = 0

    @property
    def num_weights(self) -> int:
        return sum(segment["num_weights"] for segment in self.segments)

    def ends_before(self, number: int) -> bool:
        """Return whether the run has no step of this number."""
        return self.num_steps is not None and number >= self.num_steps

    def samples_at(self, number: int) -> int:
        """Return the samples over all workers behind the step of this number."""
        return number * self.batch_size

    def updates_at(self, samples: int) -> int:
        """Return the updates of each worker's own weights, on average."""
        return samples // (self.num_workers * self.batch_size)

    def passed(self, num_kept: int, number: int) -> list[int]:
        """Return the samples of the snapshots that lie behind the step of this number.

        The first `num_kept` are left out.
        """
        behind = self.samples_at(number)
        return [samples for samples in self.snapshot_samples[num_kept:] if samples <= behind]

    def progress(self, number: int) -> float:
        """Return the share of the run behind the step of this number; 0 if it has no end."""
        return number / self.num_steps if self.num_steps else 0.0

    def bounds(self, num_servers: int) -> list[tuple[int, int]]:
        """Return each server's [first, last) of the weights."""
        if num_servers == len(self.shares):
            return list(itertools.pairwise([0, *itertools.accumulate(self.shares)]))
        return shard_bounds(self.num_weights, num_servers)

    def server_specs(self, scheme: AbstractScheme) -> list[ServerSpec]:
        """Return each server's part of the run.

        If workers apply gradients themselves, servers subtract each push from their weights
        as they are, and grant every step.
        """
        sizes = [segment["num_weights"] for segment in self.segments]
        own_weights = Accounting(scheme, self.num_workers).own_weights
        rate = None if own_weights else self.learning_rate
        return [
            ServerSpec(
                server=server,
                num_workers=self.num_workers,
                dtype=self.dtype,
                segments=[
                    self._part(group, num_weights, plain=own_weights)
                    for group, num_weights in segments(sizes, first, last)
                ],
                num_statistics=self.num_statistics if server == 0 else 0,
                batch_size=self.batch_size,
                num_steps=None if own_weights else self.num_steps,
                snapshot_samples=list(self.snapshot_samples),
                learning_rate=rate,
                seconds=self.server_seconds,
                parts=[size for _, size in segments(self.parts, first, last)],
                sample_decay=self.sample_decay,
                num_numbers=0 if own_weights else self.num_numbers,
            )
            for server, (first, last) in enumerate(self.bounds(scheme.servers))
        ]

    def _part(self, group: int, num_weights: int, *, plain: bool) -> Segment:
        """Return a server's part of a group; `plain`: applied by subtraction."""
        if plain:
            return plain_segment(num_weights)
        return {**self.segments[group], "num_weights": num_weights}
