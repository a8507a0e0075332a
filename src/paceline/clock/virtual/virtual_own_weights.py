"""Workers with their own weights on the virtual clock: state, steps, snapshots."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from paceline.clock.links import Process
from paceline.clock.run_spec import StepNumbers, VectorSpec
from paceline.clock.snapshot import Snapshot
from paceline.clock.virtual.buffers import Buffer
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Joint
from paceline.clock.virtual.shared_state import SharedStates, SnapshotMean
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.scheme.accounting import Accounting


class _Applying(NamedTuple):
    worker: VirtualWorker
    gradient: Tensor


class VirtualOwnWeights:
    """Weights of all workers.

    Workers that apply the same gradient at one instant do so together: those that share a state
    update it once, in place.
    """

    def __init__(self, parts: ClockParts, vectors: VectorSpec, weights: Tensor) -> None:
        scheme, run, kernel, workers = parts.scheme, parts.run, parts.kernel, parts.workers
        self._scheme, self._run, self._workers, self._kernel = scheme, run, workers, kernel
        self.states = SharedStates(
            parts.pool,
            weights,
            vectors.segments,
            run,
            shared=parts.recycled,
            averaged=not scheme.servers,
        )
        self._snapshot_mean = SnapshotMean(run, self.states)
        self._applying = Joint[_Applying](kernel, self._apply_all)
        self._finishing = Joint[VirtualWorker](kernel, self._finish_all)
        accounting = Accounting(scheme, run.num_workers)
        draw = itertools.count().__next__
        self._numbers = [StepNumbers(accounting, draw) for _ in workers]
        for worker, numbers in zip(workers, self._numbers, strict=True):
            worker.step_numbers = [numbers.next()]
        self._equal_steps = accounting.equal_steps
        self._num_finished = 0  # steps of all workers

    def begin(self, worker: VirtualWorker) -> Buffer:
        """Return the weights on which the worker computes its next step."""
        return self.states.begin(worker.index)

    def has_step(self, worker: VirtualWorker) -> bool:
        """Return True if a step of the run is left for the worker."""
        return not (self.diverged or self._run.ends_before(worker.next_number))

    def apply(self, worker: VirtualWorker, gradient: Tensor) -> Process[Tensor]:
        """Apply `gradient` by the worker's own optimizer; return its weights after that."""
        yield from self._applying.join(_Applying(worker, gradient))
        return self.states.of[worker.index].weights.vector

    def adopt(self, worker: VirtualWorker, weights: Tensor) -> None:
        self.states.hold(worker.index, weights)

    def finish(self, worker: VirtualWorker) -> Process[None]:
        """Count a finished step, before any worker begins another at this instant."""
        return self._finishing.join(worker)

    @property
    def updates(self) -> int:
        """Mean number of updates of a worker's weights."""
        return self._num_finished // self._run.num_workers

    @property
    def samples(self) -> int:
        """Samples over all workers that have been applied to their weights."""
        whole = self.updates * self._run.num_workers
        return self._run.samples_at(whole if self._equal_steps else self._num_finished)

    @property
    def diverged(self) -> bool:
        return self._snapshot_mean.diverged

    @property
    def snapshots(self) -> list[Snapshot]:
        return self._snapshot_mean.snapshots

    @property
    def num_snapshots(self) -> int:
        return len(self._snapshot_mean.snapshots)

    @property
    def statistics(self) -> list[Tensor]:
        return [worker.statistics.vector for worker in self._workers]

    def mean(self) -> Tensor:
        """Return the mean of all workers' weights, as a new vector."""
        return self.states.mean()

    def _apply_all(self, applying: Sequence[_Applying]) -> None:
        together: dict[object, tuple[Tensor, set[int]]] = {}
        for worker, gradient in applying:
            same = (id(gradient), tuple(worker.take_numbers() or ()))
            together.setdefault(same, (gradient, set()))[1].add(worker.index)
        for gradient, workers in together.values():
            first = self._workers[min(workers)]
            factor = self._run.rate_factor(self._run.samples_at(first.next_number))
            self.states.apply(workers, gradient, factor, first.take_numbers())

    def _finish_all(self, workers: Sequence[VirtualWorker]) -> None:
        self._num_finished += len(workers)
        for worker in workers:
            worker.step_numbers.append(self._numbers[worker.index].next())
        self._take_in(workers)
        if not self._scheme.servers:
            self._snapshot_mean.add(workers, self._kernel.now)

    def _take_in(self, workers: Sequence[VirtualWorker]) -> None:
        """Bring the weights after a step into moving averages, together where images are equal."""
        by_images: dict[int, set[int]] = {}
        for worker in workers:
            before, after = map(self._run.samples_at, worker.step_numbers[-2:])
            by_images.setdefault(after - before, set()).add(worker.index)
        for images, together in by_images.items():
            self.states.take_in(together, images)
