"""Counts of batches, pushes and updates in a run by a scheme; those of servers are found by serving
equally fast workers in turn.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.serving import Arrival, Release

BEGINNING, END = 0.0, math.nextafter(1.0, 0.0)  # of a run: the least and the most progress


class _Served(NamedTuple):
    """Mean staleness of pushes, mean number of batches in an update, and if servers drop pushes."""

    staleness: float
    batches: float
    drops: bool


@dataclass(frozen=True)
class Counts:
    """Counts of a scheme with `num_workers` workers, each computed once when it is first needed.
    Raises SettingError if the scheme cannot have this number of workers.
    """

    scheme: AbstractScheme
    num_workers: int

    def __post_init__(self) -> None:
        if self.num_workers % self.scheme.group_size:
            message = f"{self.scheme.group_size} does not divide workers={self.num_workers}"
            raise SettingError("scheme.group_size", message)
        if self.scheme.servers:
            self.scheme.serving(self.num_workers)

    @property
    def can_meet(self) -> bool:
        """True if all workers can wait for each other before any step, because they take equally
        many steps and no gradient is dropped.
        """
        if self.num_workers == 1 or self.scheme.equal_steps:
            return True
        synchronous = self.scheme.claim(self.num_workers) == "synchronous"
        return synchronous and not self._served(BEGINNING).drops

    @property
    def steps_per_push(self) -> int:
        """Number of batches of which one push has the gradients, over all workers of a group."""
        return self.scheme.group_size * self.scheme.steps_between_pushes

    def check_servers(self, num_steps: int) -> None:
        """Raise SettingError for more servers than pushes in `num_steps` of all workers."""
        pushes = num_steps // self.steps_per_push
        if self.scheme.servers > pushes:
            message = f"{self.scheme.servers} servers, but only {pushes} pushes in the whole run"
            raise SettingError("scheme.servers", message)

    def check_clipping(self, value: float | None) -> None:
        """Raise SettingError if workers would clip in vain: gradients that the scheme changes
        afterwards, for example to a mean. Not for runs by DDP, which clips the mean itself.
        `value`: largest norm, or absolute value of an element; None and 0 clip nothing.
        """
        if value and not self.applies_own_gradients:
            name = type(self.scheme).__name__
            message = f"workers clip their own gradients, but {name} changes them afterwards; "
            raise SettingError("training.gradient_clip_val", message + "null is needed")

    @property
    def applies_own_gradients(self) -> bool:
        """True if every gradient that is applied at the beginning and at the end of the run is one
        that a worker computed. Damping by staleness counts as such, since it only lowers the rate.
        """
        scheme = self.scheme
        if self.num_workers == 1:
            return True
        if scheme.own_weights:
            return not scheme.averages_gradients
        if scheme.needs_read:
            return False  # it is compensated
        return all(self._served(progress).batches == 1 for progress in (BEGINNING, END))

    def group_of(self, worker: int) -> range:
        """List the workers of this worker's group, of which the first speaks with the servers."""
        first = worker - worker % self.scheme.group_size
        return range(first, first + self.scheme.group_size)

    @property
    def pushing(self) -> range:
        """The workers that exchange messages with the servers: the first of each group."""
        return range(0, self.num_workers, self.scheme.group_size)

    @cached_property
    def expected_staleness(self) -> float:
        """Mean staleness [updates] of the pushes that servers apply at the end of a run of equally
        fast workers; 0 if workers apply gradients themselves.
        """
        return 0.0 if self.scheme.own_weights else self._served(END).staleness

    @property
    def batches_meanwhile(self) -> float:
        """Mean number of batches that servers apply between a worker's read and the arrival of its
        push, at the end of a run of equally fast workers; 0 if workers apply gradients themselves.
        """
        stale = self.expected_staleness
        return stale * self._served(END).batches if stale else 0.0

    @property
    def becomes_stale(self) -> bool:
        """True if servers apply stale pushes at the end of a run, and none at its beginning."""
        return self.expected_staleness > 0 and self._served(BEGINNING).staleness == 0

    @cached_property
    def batches_per_update(self) -> int:
        """Number of batches whose gradients are in one update of the weights that are evaluated;
        rules of the learning rate scale by it. If workers average weights among themselves, it is
        the number of workers. For a scheme that changes, it is that of the first phase.
        """
        scheme, workers = self.scheme, self.num_workers
        have_partners = any(scheme.partners(each, workers) for each in range(workers))
        if scheme.needs_end or scheme.equal_steps or have_partners:
            return workers
        if not scheme.servers:
            return 1
        return int(self._served(BEGINNING).batches)

    @property
    def batches_per_round(self) -> int:
        """Number of which a run's batches must be a multiple, to end with a whole round."""
        if self.scheme.own_weights:
            return self.num_workers if self.scheme.equal_steps else self.steps_per_push
        return self.batches_per_update

    def batches(self, updates: int, num_steps: int | None) -> int:
        """Count the batches in the first `updates` updates of a run. `num_steps`: steps of all
        workers in the run; None if the run has no end.
        """
        if self.scheme.own_weights or not self.scheme.needs_end or num_steps is None:
            return updates * self.batches_per_update
        if num_steps not in self._totals:
            pushes = self._pushes_in_turn(lambda batches: batches / num_steps)
            applied = (len(release.applied) * self.scheme.group_size for _, release in pushes)
            self._totals[num_steps] = filter(None, applied), [0]
        sizes, sums = self._totals[num_steps]
        while len(sums) <= updates:
            sums.append(sums[-1] + next(sizes))
        return sums[updates]

    def most_batches(self, num_steps: int) -> int:
        """Return an upper bound of the batches drawn until `num_steps` of them are applied."""
        if not (self.scheme.servers and self._served(BEGINNING).drops):
            return num_steps
        return (num_steps // self.batches_per_update + 1) * self.num_workers

    def _served(self, progress: float) -> "_Served":
        """Serve two pushes of each worker on average, and return what happened to the second half
        of them: during the first half, not all workers have a push under way yet.
        """
        number, group_size = len(self.pushing), self.scheme.group_size
        pushes = self._pushes_in_turn(lambda batches: progress)
        seen = list(itertools.islice(pushes, number, 2 * number))
        used = [push.staleness for push, release in seen if push.worker not in release.dropped]
        sizes = [group_size * len(release.applied) for _, release in seen if release.applied]
        return _Served(fmean(used), fmean(sizes), len(used) < number)

    def _pushes_in_turn(
        self, progress: Callable[[int], float]
    ) -> Iterator[tuple[Arrival, Release]]:
        """Serve equally fast workers endlessly: each pushes in turn unless it waits.
        `progress(batches)`: share of the run after so many batches.
        """
        serving = self.scheme.serving(self.num_workers)
        read = dict.fromkeys(self.pushing, 0)  # versions, of workers that may push
        version = batches = 0
        for worker in itertools.cycle(self.pushing):
            if worker not in read:
                continue
            arrival = Arrival(worker, version - read.pop(worker), progress(batches))
            release = serving.arrive(arrival)
            version += bool(release.applied)
            batches += len(release.applied) * self.scheme.group_size
            read |= dict.fromkeys(release.answered, version)
            yield arrival, release
            if not read:
                name = type(self.scheme).__name__
                raise SettingError("scheme", f"{name} lets all workers wait")

    @cached_property
    def _totals(self) -> dict[int, tuple[Iterator[int], list[int]]]:
        """Batches behind further updates, and their sums so far, by number of steps."""
        return {}
