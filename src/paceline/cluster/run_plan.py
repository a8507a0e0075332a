"""What a run is: how many workers, what they train, for how long; and each server's part of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.cluster.served_weights import ServerPlan
from paceline.exchange.shard import segments, shard_bounds
from paceline.model.learning_rate import LearningRate


@dataclass(frozen=True)
class RunPlan:
    """`segments`: all weights in order, a Segment for each group of the optimizer.

    `server_seconds`: that a server takes for a push at least, on the wall clock.
    """

    workers: int
    batch_size: int
    num_steps: int | None  # of all workers together; None: no end
    snapshot_steps: Sequence[int]  # updates after which to keep the weights, ascending
    learning_rate: LearningRate | None
    segments: list[Any]
    num_statistics: int
    dtype: str
    server_seconds: float = 0

    def bounds(self, servers: int) -> list[tuple[int, int]]:
        """Each server's [first, last) of the weights."""
        return shard_bounds(sum(part["num_weights"] for part in self.segments), servers)

    def server_plans(self, servers: int) -> list[ServerPlan]:
        sizes = [part["num_weights"] for part in self.segments]
        return [
            ServerPlan(
                server=server,
                workers=self.workers,
                dtype=self.dtype,
                segments=[
                    {**self.segments[group], "num_weights": count}
                    for group, count in segments(sizes, first, last)
                ],
                num_statistics=self.num_statistics if server == 0 else 0,
                batch_size=self.batch_size,
                num_steps=self.num_steps,
                snapshot_steps=list(self.snapshot_steps),
                learning_rate=asdict(self.learning_rate) if self.learning_rate else None,
                seconds=self.server_seconds,
            )
            for server, (first, last) in enumerate(self.bounds(servers))
        ]
