"""Vectors that the processes of a run exchange, and each server's part of them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.clock.flat_optimizer import Segment, plain_segment
from paceline.clock.run_spec import RunSpec, run_of_servers
from paceline.exchange.shard import segments, shard_bounds
from paceline.model.learning_rate import LearningRate
from paceline.scheme.rule import AbstractScheme


@dataclass(frozen=True)
class VectorSpec:
    """Vectors that the processes of a run exchange, for its module and optimizer.

    `segments`: all weights in order, one segment for each group of the optimizer. `num_statistics`:
    number of BatchNorm values. `dtype`: type of weights and gradients, "float32" or "float64".
    `shares`: number of weights of each server in order; none if they are equal. `num_numbers`: how
    many options of the optimizer come with each gradient, see LiveOptions; 0 if none changes.
    """

    segments: Sequence[Segment]
    num_statistics: int = 0
    dtype: str = "float32"
    shares: Sequence[int] = ()
    num_numbers: int = 0

    @property
    def num_weights(self) -> int:
        return sum(segment["num_weights"] for segment in self.segments)

    def bounds(self, num_servers: int) -> list[tuple[int, int]]:
        """Return each server's [first, last) of the weights."""
        if num_servers == len(self.shares):
            return list(itertools.pairwise([0, *itertools.accumulate(self.shares)]))
        return shard_bounds(self.num_weights, num_servers)

    def of_server(self, server: int, num_servers: int, *, plain: bool) -> "VectorSpec":
        """Return the vectors of one server; the first one has the statistics. `plain`: True if the
        server subtracts pushes from its weights as they are, without an optimizer.
        """
        first, last = self.bounds(num_servers)[server]
        sizes = [segment["num_weights"] for segment in self.segments]
        found = [
            plain_segment(size) if plain else Segment({**self.segments[group], "num_weights": size})
            for group, size in segments(sizes, first, last)
        ]
        return VectorSpec(
            segments=found,
            num_statistics=self.num_statistics if server == 0 else 0,
            dtype=self.dtype,
            num_numbers=0 if plain else self.num_numbers,
        )


@dataclass(frozen=True)
class ServerSpec:
    """Specification of one server, which `asdict` turns into JSON. `run`: that of `run_of_servers`.
    `vectors`: description of this server's part of the vectors.
    """

    server: int
    run: RunSpec
    vectors: VectorSpec

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ServerSpec":
        run: dict[str, Any] = dict(content["run"])
        if run["learning_rate"]:
            run["learning_rate"] = LearningRate(**run["learning_rate"])
        return cls(content["server"], RunSpec(**run), VectorSpec(**content["vectors"]))


def server_specs(scheme: AbstractScheme, run: RunSpec, vectors: VectorSpec) -> list[ServerSpec]:
    """Return each server's part of the run."""
    run = run_of_servers(scheme, run)
    return [
        ServerSpec(server, run, vectors.of_server(server, scheme.servers, plain=scheme.own_weights))
        for server in range(scheme.servers)
    ]
