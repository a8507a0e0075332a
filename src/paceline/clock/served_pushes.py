"""Pushes to one server, without the vectors: which of them are applied and when, whom the server
answers, and who may take another step. It is the same on the wall and the virtual clock.
"""

from collections import Counter
from typing import NamedTuple

from paceline.clock.reports import ServerReport
from paceline.clock.run_spec import RunSpec
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.serving import Arrival, Release


class Update(NamedTuple):
    """Update of a server's weights by the mean of the last pushes of `workers`. `images`: number of
    images of which these have the gradients. `factor`: factor on the optimizer's rates.
    `snapshot_of`: workers whose statistics are in the snapshot that is kept after the update; None
    if none is kept.
    """

    workers: tuple[int, ...]
    images: int
    factor: float
    snapshot_of: tuple[int, ...] | None


class ServedPushes:
    """Pushes to the server of this number, by the scheme's rule.

    A grant is an answer that allows its worker another step; no more steps are granted than `run`
    has. `num_pushes`: pushes that have arrived, by worker. `update`: what the last push, or the end
    of a worker, has let the server apply; None for nothing. Once the report says that the weights
    have diverged, no step is granted.
    """

    def __init__(self, scheme: AbstractScheme, run: RunSpec, server: int) -> None:
        self.report = ServerReport(server)
        self.num_pushes: Counter[int] = Counter()
        self.update: Update | None = None
        self._scheme, self._run = scheme, run
        self._counts = Counts(scheme, run.num_workers)
        self.serving = scheme.serving(run.num_workers)
        self._snapshot_samples = list(run.snapshot_samples)
        self._granted = 0
        self._staleness: dict[int, int] = {}  # of each worker's last push

    @property
    def samples(self) -> int:
        """Samples of all workers that have been applied to the weights."""
        return self.report.samples

    def grant(self, worker: int) -> bool:
        """Grant another step to a worker that is answered now; return False at the run's end."""
        budget = self._run.num_steps
        granted = not self.report.diverged and (budget is None or self._granted < budget)
        self._granted += granted * self._counts.steps_per_push
        return granted

    def lose(self, worker: int, reason: str, *, stepping: bool) -> tuple[int, ...]:
        """Remove a worker that died; return the workers to answer now. `stepping`: the worker had
        not finished a granted step, which returns to the budget.
        """
        self.report.lost.append((worker, reason))
        self._granted -= stepping * self._counts.steps_per_push
        self._staleness.pop(worker, None)  # its statistics would grow old
        return self.leave(worker)

    def arrive(self, worker: int, version: int) -> tuple[int, ...]:
        """Take a push of `worker`, computed on `version`; return the workers to answer now."""
        staleness, budget = self.report.updates - version, self._run.num_steps
        progress = self.samples / (budget * self._run.batch_size) if budget else 0.0
        self.report.pushes.append((worker, staleness))
        self._staleness[worker] = staleness
        self.num_pushes[worker] += 1
        release = self.serving.arrive(Arrival(worker, staleness, progress))
        return self._carry_out(release, worker)

    def leave(self, worker: int) -> tuple[int, ...]:
        """Remove a worker that sends no more pushes; return the workers to answer now."""
        return self._carry_out(self.serving.leave(worker), worker)

    def pushes_before_a_stop(self) -> int:
        return self.serving.pushes_before_a_stop()

    def _carry_out(self, release: Release, worker: int) -> tuple[int, ...]:
        self.update = self._update(release.applied) if release.applied else None
        self._granted -= len(release.dropped) * self._counts.steps_per_push
        self.report.dropped_steps += [(w, self.num_pushes[w] - 1) for w in release.dropped]
        self.report.held += sum(each != worker for each in release.answered)
        return release.answered

    def _update(self, workers: tuple[int, ...]) -> Update:
        images = len(workers) * self._counts.steps_per_push * self._run.batch_size
        rate = self._run.rate_factor(self.samples, images)
        stalest = max(self._staleness[worker] for worker in workers)
        self.report.updates += 1
        self.report.samples += images
        due = bool(self._snapshot_samples) and self.samples >= self._snapshot_samples[0]
        if due:
            self._snapshot_samples.pop(0)
        pushed = tuple(sorted(self._staleness)) if due else None
        return Update(workers, images, rate * self._scheme.step_factor(stalest), pushed)
