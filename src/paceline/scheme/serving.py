"""State machines of a server, which decide after each push what is applied and who is answered."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Arrival:
    """A push that has arrived from `worker`, late by `staleness` versions. `progress`: share of the
    run's samples that the server's weights contain.
    """

    worker: int
    staleness: int
    progress: float = 0.0


@dataclass(frozen=True)
class Release:
    """Consequences of a push. `applied`: workers whose pushes' mean is one update of the weights;
    no update if empty. `answered`: workers that get the weights after that. `dropped`: workers
    whose pushes are not used.
    """

    applied: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


NOTHING = Release()


class AbstractServing(ABC):
    """One server's part of a rule, for one run."""

    @abstractmethod
    def arrive(self, arrival: Arrival) -> Release:
        """Take a push that has arrived, and return its consequences."""

    def leave(self, worker: int) -> Release:
        """Expect no more of this worker, and drop its push if one waits."""
        return NOTHING

    def pushes_before_a_stop(self) -> int:
        """Return after how many pushes each worker may stop without making another wait."""
        return 0


class AtOnce(AbstractServing):
    """Every push is one update, and is answered at once."""

    def arrive(self, arrival: Arrival) -> Release:
        return Release((arrival.worker,), (arrival.worker,))


class Together(AbstractServing):
    """The first `needed` pushes of a version are one update; later ones are dropped."""

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
    """Every push is one update, answered when its worker leads by at most `bound` steps."""

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
    """Together until `switch_at` of the run's samples, then each push at once."""

    def __init__(self, num_workers: int, switch_at: float) -> None:
        self._together, self._at_once = Together(num_workers, num_workers), AtOnce()
        self._switch_at = switch_at

    def arrive(self, arrival: Arrival) -> Release:
        early = arrival.progress < self._switch_at
        return (self._together if early else self._at_once).arrive(arrival)

    def leave(self, worker: int) -> Release:
        return self._together.leave(worker)
