"""State machines by which a server decides, after each push, which pushes it applies and which
workers it answers with weights.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Arrival:
    """A push that has arrived from `worker`. `staleness`: number of updates of the server's weights
    since the weights on which the push was computed. `progress`: share of the run's samples that
    the server's weights contain.
    """

    worker: int
    staleness: int
    progress: float = 0.0


@dataclass(frozen=True)
class Release:
    """Actions of a server after a push. `applied`: workers whose pushes it averages and applies as
    one update of the weights; no update if empty. `answered`: workers to which it then sends the
    weights. `dropped`: workers whose pushes are not used.
    """

    applied: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


NOTHING = Release()


class AbstractServing(ABC):
    """State of one server in one run, which decides what the server does after each push."""

    @abstractmethod
    def arrive(self, arrival: Arrival) -> Release:
        """Take a push that has arrived, and return its consequences."""

    def leave(self, worker: int) -> Release:
        """Expect no more pushes of this worker, drop a push of this worker that waits, and return
        what the server does now, since others may have waited for this worker.
        """
        return NOTHING

    def pushes_before_a_stop(self) -> int:
        """Return a number of pushes of each worker after which none waits for another."""
        return 0

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as plain values: attributes by name."""
        return dict(vars(self))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another server of the same scheme."""
        vars(self).update(state)


class AtOnce(AbstractServing):
    """Each push is applied as one update and answered at once."""

    def arrive(self, arrival: Arrival) -> Release:
        return Release((arrival.worker,), (arrival.worker,))


class Together(AbstractServing):
    """The mean of the first `needed` pushes for a version of the weights is one update; later
    pushes for this version are dropped.
    """

    def __init__(self, num_workers: int, needed: int) -> None:
        self._num_workers, self._needed = num_workers, needed
        self._waiting: tuple[int, ...] = ()

    def arrive(self, arrival: Arrival) -> Release:
        if arrival.staleness > 0:
            return Release(answered=(arrival.worker,), dropped=(arrival.worker,))
        self._waiting = (*self._waiting, arrival.worker)
        return self._released()

    def leave(self, worker: int) -> Release:
        self._num_workers -= 1
        dropped = tuple(each for each in self._waiting if each == worker)
        self._waiting = tuple(each for each in self._waiting if each != worker)
        return replace(self._released(), dropped=dropped)

    def _released(self) -> Release:
        if not self._waiting or len(self._waiting) < min(self._needed, self._num_workers):
            return NOTHING
        applied, self._waiting = self._waiting, ()
        return Release(applied, applied)


class Bounded(AbstractServing):
    """Each push is applied at once as one update. It is answered when its worker is at most `bound`
    steps ahead of the slowest worker.
    """

    def __init__(self, workers: Iterable[int], bound: int) -> None:
        self._bound = bound
        self._steps = Counter(dict.fromkeys(workers, 0))
        self._waiting: tuple[int, ...] = ()

    def arrive(self, arrival: Arrival) -> Release:
        self._steps[arrival.worker] += 1
        self._waiting = (*self._waiting, arrival.worker)
        return Release((arrival.worker,), self._let_go())

    def leave(self, worker: int) -> Release:
        del self._steps[worker]
        self._waiting = tuple(each for each in self._waiting if each != worker)
        return Release(answered=self._let_go())

    def pushes_before_a_stop(self) -> int:
        return max(self._steps.values(), default=0) + 1  # the fastest may be in its next step

    def _let_go(self) -> tuple[int, ...]:
        slowest = min(self._steps.values(), default=0)
        answered = tuple(w for w in self._waiting if self._steps[w] - slowest <= self._bound)
        self._waiting = tuple(worker for worker in self._waiting if worker not in answered)
        return answered


class ThenAtOnce(AbstractServing):
    """Pushes of all workers are averaged to one update until `switch_at` (a share) of the run's
    samples; afterwards each push is applied and answered at once.
    """

    def __init__(self, num_workers: int, switch_at: float) -> None:
        self._together, self._at_once = Together(num_workers, num_workers), AtOnce()
        self._switch_at = switch_at

    def arrive(self, arrival: Arrival) -> Release:
        early = arrival.progress < self._switch_at
        return (self._together if early else self._at_once).arrive(arrival)

    def leave(self, worker: int) -> Release:
        return self._together.leave(worker)

    def state(self) -> dict[str, Any]:
        return self._together.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._together.load_state(state)
