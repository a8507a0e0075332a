"""The seam between a rule and a clock.

A rule is written over values: gradients and messages in, messages out. The worker's part is a
generator in which every `yield` is a communication; the server's part says, after each push, what
is applied and who is answered. Rules mutate nothing, use nothing again that they gave away in a
message, and know no socket, clock or optimizer: what drives them (real processes, or an event
queue) owns weights, optimizer state and buffers.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Mean:
    """All workers meet here; each is answered with the mean of what they brought."""

    value: Tensor


@dataclass(frozen=True)
class Push:
    """To the servers; answered with the weights that they release to this worker."""

    gradient: Tensor


@dataclass(frozen=True)
class Apply:
    """The step ends with the worker's own optimizer applying this gradient."""

    gradient: Tensor


@dataclass(frozen=True)
class Adopt:
    """The step ends with the worker holding these weights."""

    weights: Tensor


@dataclass(frozen=True)
class Arrival:
    """A push that waits at a server: who sent it, and how many versions late it is."""

    worker: int
    staleness: int


@dataclass(frozen=True)
class Release:
    """One update of the weights: the mean of these workers' gradients; then these are answered."""

    applied: tuple[int, ...]
    answered: tuple[int, ...]


Step = Generator[Mean | Push, Any, Apply | Adopt]


class AbstractScheme(ABC):
    """One way of sharing updates. A concrete scheme fills in the rule and is never subclassed."""

    servers: int = 0
    collective: str = "native"  # that carries out a Mean

    @abstractmethod
    def step(self, gradient: Tensor) -> Step:
        """One worker's step, from its gradient to the outcome."""

    @abstractmethod
    def images_per_update(self, batch_size: int, workers: int) -> int:
        """Images behind one update of the weights: what rate rules scale with."""

    def released(self, waiting: tuple[Arrival, ...], workers: int) -> Release | None:
        """What a server does when the last of `waiting` has just arrived; None: wait for more."""
        raise NotImplementedError(f"{type(self).__name__} has no servers")
