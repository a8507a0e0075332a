"""Workers with their own weights on the virtual clock: state, steps, pairwise means, snapshots."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.clock.flat_optimizer import AbstractFlatOptimizer, flat_optimizer
from paceline.clock.run_spec import StepNumbers, VectorSpec
from paceline.clock.snapshot import MovingAverage, Snapshot, scored_weights
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Joint, Process
from paceline.clock.virtual.virtual_worker import Buffer, VirtualWorker
from paceline.scheme.audit import Averaged
from paceline.scheme.counts import Counts


class RunningMean:
    """Mean in a single vector for any number of vectors; exact if all are equal."""

    def __init__(self) -> None:
        self.count = 0
        self.value = torch.empty(0)

    def add(self, vector: Tensor, times: int = 1) -> None:
        """Add `vector` with the weight `times`."""
        self.count += times
        if self.count == times:
            self.value = vector.clone()
        else:
            self.value.lerp_(vector, times / self.count)


@dataclass(eq=False)
class SharedState:
    """Weights, optimizer state and moving average of all workers in `holders`."""

    weights: Buffer
    optimizer: AbstractFlatOptimizer
    average: MovingAverage | None
    holders: set[int]


class SharedStates:
    """States of all workers, which are shared while they are equal. `of[worker]`: state of a
    worker. All workers begin with one state. With servers, the servers keep the moving averages.
    """

    def __init__(self, parts: ClockParts, vectors: VectorSpec, weights: Tensor) -> None:
        self._pool, workers = parts.pool, parts.run.num_workers
        first = self._pool.copy(weights)
        average = None if parts.scheme.servers else parts.run.average_of([first.vector])
        optimizer = flat_optimizer(first.vector, vectors.segments)
        state = SharedState(first, optimizer, average, set(range(workers)))
        self.of = [state] * workers
        self._kept: dict[int, Buffer] = {}  # weights of steps under way, if they have changed since

    def begin(self, worker: int) -> Buffer:
        """Return the weights on which the worker computes its next step."""
        if (kept := self._kept.pop(worker, None)) is not None:
            self._pool.release(kept)
        return self.of[worker].weights

    def keep(self, worker: int) -> Buffer:
        """Copy the weights of a step under way, which are about to change. Returns the copy, which
        is valid until the worker's next step begins.
        """
        if worker not in self._kept:
            self._kept[worker] = self._pool.copy(self.of[worker].weights.vector)
        return self._kept[worker]

    def of_exactly(self, workers: set[int]) -> Iterator[SharedState]:
        """Yield the states of these workers, which no other worker shares from now on."""
        for state in self._distinct(sorted(workers)):
            chosen = state.holders & workers
            yield state if chosen == state.holders else self._split(state, chosen)

    def own(self, worker: int) -> Tensor:
        """Return the worker's weights, which no other worker shares from now on."""
        (state,) = self.of_exactly({worker})
        return state.weights.vector

    def mean(self) -> Tensor:
        """Return the mean of all workers' weights, as a new vector."""
        mean = RunningMean()
        for state in self._distinct(range(len(self.of))):
            mean.add(state.weights.vector, len(state.holders))
        return mean.value

    def _distinct(self, workers: Iterable[int]) -> list[SharedState]:
        return list(dict.fromkeys(self.of[worker] for worker in workers))

    def _split(self, state: SharedState, workers: set[int]) -> SharedState:
        """Give these workers a copy of the state that they have shared until now."""
        weights = self._pool.copy(state.weights.vector)
        average = state.average.fork() if state.average else None
        own = SharedState(weights, state.optimizer.fork(weights.vector), average, set(workers))
        state.holders -= workers
        for worker in workers:
            self.of[worker] = own
        return own


class VirtualOwnWeights:
    """Weights of all workers. Workers that apply the same gradient at one instant do so together:
    those that share a state update it once, in place.
    """

    def __init__(self, parts: ClockParts, vectors: VectorSpec, weights: Tensor) -> None:
        self._parts, self._run, self._workers = parts, parts.run, parts.workers
        self._states = SharedStates(parts, vectors, weights)
        self.snapshots: list[Snapshot] = []
        self.diverged = False
        self._num_passed = [0] * parts.run.num_workers  # snapshots, by worker
        self._means: dict[int, tuple[RunningMean, RunningMean]] = {}  # by samples
        self._applying = Joint(parts.kernel, self._apply_all)
        self._finishing = Joint(parts.kernel, self._finish_all)
        counts = Counts(parts.scheme, parts.run.num_workers)
        draw = itertools.count().__next__
        self._numbers = [StepNumbers(counts, draw) for _ in parts.workers]
        for worker, numbers in zip(parts.workers, self._numbers, strict=True):
            worker.step_numbers = [numbers.next()]
        self._equal_steps = parts.scheme.equal_steps
        self._num_finished = 0  # steps of all workers

    def begin(self, worker: VirtualWorker) -> None:
        """Give the worker the weights on which it computes its next step."""
        worker.weights = self._states.begin(worker.index)

    def has_step(self, worker: VirtualWorker) -> bool:
        """Return True if a step of the run is left for the worker."""
        return not (self.diverged or self._run.ends_before(worker.next_number))

    def apply(self, worker: VirtualWorker, gradient: Tensor) -> Process[Tensor]:
        """Apply `gradient` by the worker's own optimizer; return its weights after that."""
        yield from self._applying.join((worker, gradient))
        return self._states.of[worker.index].weights.vector

    def adopt(self, worker: VirtualWorker, weights: Tensor) -> None:
        """Copy `weights` to the worker; its optimizer's state does not change."""
        self._states.own(worker.index).copy_(weights)

    def pair(self, worker: VirtualWorker, partner_index: int) -> Process[None]:
        """Average the worker's present weights with those that the partner has when they arrive
        there. Messages pass beside the computing of both, and answering costs the partner no time.
        """
        partner, sent_after = self._workers[partner_index], worker.num_steps
        buffer = self._parts.pool.copy(self._states.of[worker.index].weights.vector)
        sent = buffer.vector
        yield from self._send_weights(worker, partner)
        mean = self._changed(partner).add_(sent).mul_(0.5)
        change = sent.neg_().add_(mean)
        taken = partner.num_steps
        partner.averages.append(Averaged(worker.index, taken, taken))
        yield from self._send_weights(partner, worker)
        self._changed(worker).add_(change)
        self._parts.pool.release(buffer)
        worker.averages.append(Averaged(partner_index, sent_after, worker.num_steps))

    def finish(self, worker: VirtualWorker) -> Process[None]:
        """Count a finished step, before any worker begins another step at this instant."""
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
    def num_snapshots(self) -> int:
        return len(self.snapshots)

    @property
    def statistics(self) -> list[Tensor]:
        return [worker.statistics.vector for worker in self._workers]

    def mean(self) -> Tensor:
        """Return the mean of all workers' weights, as a new vector."""
        return self._states.mean()

    def _changed(self, worker: VirtualWorker) -> Tensor:
        """Return a worker's weights to be changed, copied first if it computes on them."""
        if worker.computing:
            worker.weights = self._states.keep(worker.index)
        return self._states.own(worker.index)

    def _send_weights(self, sender: VirtualWorker, receiver: VirtualWorker) -> Process[None]:
        size = self._parts.sizes.weights(self._states.of[sender.index].weights.vector.nbytes)
        sender.bytes_sent += size
        receiver.bytes_received += size
        yield from self._parts.network.pass_on(sender.index, receiver.index, size)

    def _apply_all(self, applying: Sequence[tuple[VirtualWorker, Tensor]]) -> None:
        together: dict[object, tuple[Tensor, set[int]]] = {}
        for worker, gradient in applying:
            same = (id(gradient), tuple(worker.take_numbers() or ()))
            together.setdefault(same, (gradient, set()))[1].add(worker.index)
        for gradient, workers in together.values():
            first = self._workers[min(workers)]
            factor = self._run.rate_factor(self._run.samples_at(first.next_number))
            for state in self._states.of_exactly(workers):
                state.optimizer.step(gradient, factor, first.take_numbers())

    def _finish_all(self, workers: Sequence[VirtualWorker]) -> None:
        self._num_finished += len(workers)
        by_images: dict[int, set[int]] = {}  # where equal, averages take them in together
        for worker in workers:
            worker.step_numbers.append(self._numbers[worker.index].next())
            before, after = map(self._run.samples_at, worker.step_numbers[-2:])
            by_images.setdefault(after - before, set()).add(worker.index)
        for images, together in by_images.items() if self._states.of[0].average else ():
            for state in self._states.of_exactly(together):
                assert state.average is not None
                state.average.update([state.weights.vector], images)
        if not self._parts.scheme.servers:
            self._keep_snapshots(workers)

    def _keep_snapshots(self, workers: Sequence[VirtualWorker]) -> None:
        """Add the weights of workers that have just finished a step to the snapshots they reach."""
        passing: dict[int, list[VirtualWorker]] = {}
        for worker in workers:
            passed = self._run.passed(self._num_passed[worker.index], worker.next_number)
            self._num_passed[worker.index] += len(passed)
            for samples in passed:
                passing.setdefault(samples, []).append(worker)
        for samples, passed_by in sorted(passing.items()):
            self._add_to_snapshot(samples, passed_by)

    def _add_to_snapshot(self, samples: int, workers: Sequence[VirtualWorker]) -> None:
        """Add to the mean over workers, which is a snapshot when all have reached its samples."""
        means = self._means.setdefault(samples, (RunningMean(), RunningMean()))
        weights, statistics = means
        states = Counter(self._states.of[worker.index] for worker in workers)
        for state, num_workers in states.items():
            weights.add(scored_weights(state.weights.vector, state.average), num_workers)
        for worker in workers:
            statistics.add(worker.statistics.vector)
        if weights.count == self._run.num_workers:
            del self._means[samples]
            updates, now = self._run.updates_at(samples), self._parts.kernel.now
            self.snapshots.append(Snapshot(samples, updates, now, weights.value, statistics.value))
            self.diverged = not self.snapshots[-1].is_finite()
