"""What a run is: how many workers, what they train, for how long; and each server's part of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.engine.served_weights import ServerPlan
from paceline.exchange.shard import segments, shard_bounds
from paceline.model.learning_rate import LearningRate
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme

_AS_IT_IS = {"lr": 1.0, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}


@dataclass(frozen=True)
class RunPlan:
    """`segments`: all weights in order, a Segment for each group of the optimizer.

    `server_seconds`: that a server takes for a push at least, on the wall clock.
    """

    workers: int
    batch_size: int
    num_steps: int | None  # of all workers together; None: no end
    snapshot_samples: Sequence[int]  # over all workers, after which to keep the weights, ascending
    learning_rate: LearningRate | None
    segments: list[Any]
    num_statistics: int
    dtype: str
    server_seconds: float = 0

    def ends_before(self, number: int) -> bool:
        """Whether there is no step of this number."""
        return self.num_steps is not None and number >= self.num_steps

    def samples_at(self, number: int) -> int:
        """Over all workers, behind the step of this number."""
        return number * self.batch_size

    def updates_at(self, samples: int) -> int:
        """Of each worker's own weights, on average."""
        return samples // (self.workers * self.batch_size)

    def passed(self, kept: int, number: int) -> list[int]:
        """Samples of the snapshots, after the first `kept`, that lie behind the step of this
        number.
        """
        behind = self.samples_at(number)
        return [samples for samples in self.snapshot_samples[kept:] if samples <= behind]

    def progress(self, number: int) -> float:
        """The share of a run that has an end, behind the step of this number."""
        return number / self.num_steps if self.num_steps else 0.0

    def bounds(self, servers: int) -> list[tuple[int, int]]:
        """Each server's [first, last) of the weights."""
        return shard_bounds(sum(part["num_weights"] for part in self.segments), servers)

    def server_plans(self, scheme: AbstractScheme) -> list[ServerPlan]:
        """Where workers apply gradients themselves, servers take what they are pushed as it is, and
        grant every step.
        """
        sizes = [part["num_weights"] for part in self.segments]
        own_weights = Accounting(scheme, self.workers).own_weights
        rate = None if own_weights else self.learning_rate
        options = _AS_IT_IS if own_weights else {}
        return [
            ServerPlan(
                server=server,
                workers=self.workers,
                dtype=self.dtype,
                segments=[
                    {
                        **self.segments[group],
                        **options,
                        "num_weights": count,
                    }
                    for group, count in segments(sizes, first, last)
                ],
                num_statistics=self.num_statistics if server == 0 else 0,
                batch_size=self.batch_size,
                num_steps=None if own_weights else self.num_steps,
                snapshot_samples=list(self.snapshot_samples),
                learning_rate=asdict(rate) if rate else None,
                seconds=self.server_seconds,
            )
            for server, (first, last) in enumerate(self.bounds(scheme.servers))
        ]
