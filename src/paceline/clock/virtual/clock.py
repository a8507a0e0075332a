"""Virtual clock: many workers as processes, in the order of virtual time."""

import gc
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from paceline.clock.reports import StrategyReport
from paceline.clock.run_spec import VectorSpec
from paceline.clock.snapshot import Snapshot
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Process
from paceline.clock.virtual.virtual_links import (
    VirtualLinks,
    VirtualMeanLink,
    VirtualNeighbourLink,
)
from paceline.clock.virtual.virtual_own_weights import VirtualOwnWeights
from paceline.clock.virtual.virtual_servers import VirtualServers
from paceline.clock.virtual.virtual_worker import Ahead, Buffer, VirtualWorker
from paceline.data.shuffle import DataTraffic
from paceline.scheme.counts import Counts
from paceline.scheme.rule import WorkerView
from paceline.timing.profile import shuffle_seconds


class VirtualClock:
    """Clock that runs the rules of all workers, and asks its caller for gradients. `next_worker()`
    returns the worker whose backward ends next, or whose gradient a server has all of before that:
    compute it on the worker's weights, and pass it to `finish_step`. Or compute all steps that are
    under way together: `due_worker`, `begin_wave` if that worker's result is not there, and
    `finish_ahead` for each that is.
    """

    def __init__(self, parts: ClockParts, vectors: VectorSpec, weights: Tensor) -> None:
        """Make a clock whose workers all begin with `weights`, as one vector."""
        scheme, run = parts.scheme, parts.run
        self.kernel, self.workers, self.pool = parts.kernel, parts.workers, parts.pool
        self._parts, self._run, self._split = parts, run, parts.split
        self._counts = Counts(scheme, run.num_workers)
        self._data = VirtualData(parts, run.traffic) if run.traffic else None
        self.servers = VirtualServers(parts, vectors, weights.clone()) if scheme.servers else None
        own_weights = self._counts.scheme.own_weights
        self._own = VirtualOwnWeights(parts, vectors, weights) if own_weights else None
        self._means, self._neighbours = VirtualMeanLink(parts), VirtualNeighbourLink(parts)
        self._ready: deque[VirtualWorker] = deque()  # their backward has just ended
        self._ending = False
        self._num_steps = 0  # of all workers, with their gradients
        self._start(weights)

    def _start(self, weights: Tensor) -> None:
        """Give every worker the same first weights, and start its process."""
        first = self.pool.copy(weights)
        for worker in self.workers:
            if self._own is None:
                worker.weights = self.pool.share(first)
            if self.servers is not None:
                worker.granted = self.servers.begin(worker)
        for worker in self.workers:
            if self._split is not None:
                self._split.begin(worker)
            links = VirtualLinks(
                worker, self.pool, self._means, self._neighbours, self.servers, self._own
            )
            self.kernel.start(self._train(worker, links))
        self.pool.release(first)
        self.kernel.settle()

    # called by a Trainer

    def next_worker(self) -> VirtualWorker | None:
        """Advance to the end of the next backward; None if no worker may take another step."""
        return self._ready.popleft() if self.due_worker() else None

    def due_worker(self) -> VirtualWorker | None:
        """Return the worker that `next_worker` would return, which stays the next one."""
        while not self._ready and len(self.kernel):
            self.kernel.advance()
        return self._ready[0] if self._ready else None

    def begin_wave(self) -> list[VirtualWorker]:
        """Return all workers that are computing now and have no result yet. Their weights,
        statistics and batches stay as they are until their backward ends. Each has buffers for its
        result, `ahead`, which the caller has to fill before `finish_ahead`.
        """
        wave = [each for each in self.workers if each.computing and each.ahead is None]
        losses = self.pool.new(len(wave)).unbind()
        for worker, loss in zip(wave, losses, strict=True):
            worker.ahead = Ahead(self.pool.take(), self._parts.statistics_pool.take(), loss)
        return wave

    def finish_ahead(self) -> None:
        """Continue the worker that is due with the result that has been computed for it."""
        worker = self._ready.popleft()
        ahead, worker.ahead = worker.ahead, None
        assert ahead is not None
        self._parts.statistics_pool.release(worker.statistics)
        worker.statistics = ahead.statistics
        self.finish_step(worker, ahead.gradient)

    def finish_step(self, worker: VirtualWorker, gradient: Buffer | None) -> None:
        """Continue a worker with its gradient, which the clock owns from now on. `gradient`: None
        if the step is abandoned because training ends.
        """
        self._num_steps += gradient is not None
        self.kernel.happen(worker.computed, gradient)
        self.kernel.settle()

    def finish_idle_step(self, worker: VirtualWorker) -> None:
        """Continue a worker with a gradient of zero."""
        gradient = self.pool.take()
        gradient.vector.zero_()
        self.finish_step(worker, gradient)

    def batches_behind(self, worker: VirtualWorker) -> int:
        """Count the batches of all workers in the weights that this one knows."""
        if self._own is not None:
            return worker.next_number
        first = self.workers[self._counts.group_of(worker.index)[0]]  # it speaks for its group
        return self._counts.batches(first.versions[0], self._run.num_steps)

    def state(self) -> dict[str, Any]:
        """Return the state between two steps, for `resume`; it holds the clock's own vectors."""
        return {"steps": self._num_steps, "now": self.kernel.now, "content": self._content()}

    def resume(self, state: Mapping[str, Any], *, in_waves: bool = False) -> None:
        """Go on from the state of another clock with the same parts; this one has just started.
        `in_waves`: its caller has computed waves.

        The parts determine what happens when, and which worker holds which vector, because a rule
        never depends on values. So everything that happened is repeated without computing, with
        gradients of zero, and then every vector gets its content. Raises ValueError for the state
        of other parts.
        """
        steps = state["steps"]
        while in_waves and (worker := self.due_worker()) is not None and self._num_steps < steps:
            for each in self.begin_wave() if worker.ahead is None else ():
                assert each.ahead is not None
                each.ahead.gradient.vector.zero_()
                each.ahead.statistics.vector.copy_(each.statistics.vector)
            self.finish_ahead()
        while self._num_steps < steps and (worker := self.next_worker()) is not None:
            self.finish_idle_step(worker)
        if (self._num_steps, self.kernel.now) != (steps, state["now"]):
            raise ValueError(f"another run's state: {state['now']} s after {steps} steps")
        fill_content(self._content(), state["content"])

    def _content(self) -> list[Tensor]:
        data = () if self._data is None else (self._data.traffic,)  # drawn anew, by position
        return content_of(self, apart_from=data)

    def end(self) -> None:
        """Deliver all messages under way; no worker takes another step."""
        self._ending = True
        while (worker := self.next_worker()) is not None:
            self.finish_step(worker, None)
        if self._own is not None:
            for worker in self.workers:
                self._own.begin(worker)  # what followed its last step included

    # observations

    @property
    def holder(self) -> VirtualServers | VirtualOwnWeights:
        """Owner of the evaluated weights: the servers, or the workers."""
        holder = self.servers or self._own
        assert holder is not None
        return holder

    def shared(self) -> Snapshot:
        """Return a snapshot of the present weights: the servers', or the mean over workers."""
        holder = self.holder
        statistics = torch.stack(holder.statistics).mean(0)
        weights = holder.mean()[None]
        return Snapshot(holder.samples, holder.updates, self.kernel.now, weights, statistics)

    def busy_seconds(self) -> dict[str, float]:
        """Return the virtual seconds in which each link or server that is modelled was busy."""
        links = {"all-reduce": self._means.busy_seconds, **self._parts.network.busy_seconds()}
        working = self.servers.busy_seconds() if self.servers else {}
        return {**links, **working, **(self._split.busy_seconds() if self._split else {})}

    def report(self) -> StrategyReport:
        return StrategyReport(
            counted=sum(worker.num_steps > 0 for worker in self.workers),
            updates=self.holder.updates,
            diverged=self.holder.diverged,
            workers=[worker.report() for worker in self.workers],
            servers=[each.report for each in self.servers.served] if self.servers else [],
        )

    # the life of a worker

    def _train(self, worker: VirtualWorker, links: VirtualLinks) -> Process[None]:
        """Take a worker's steps, each from a batch to new weights, then its rule's end.

        `_own` is None if servers have the weights, and `_split` if each worker has a whole network.
        """
        scheme, run = self._parts.scheme, self._run
        while True:
            if self._own is not None:
                self._own.begin(worker)
            has_step = worker.granted if self._own is None else self._own.has_step(worker)
            if not has_step:
                break
            if self._ending:  # messages under way are delivered, and no step is taken
                return
            if self._data is not None:
                yield from self._data.fetch(worker)
            yield from self._compute(worker, links)  # takes the time of the worker's step
            worker.gradient = yield worker.computed  # by the Trainer, or by an engine
            worker.computing = False
            if worker.gradient is None:
                return
            if self._split is not None:
                yield from self._split.gather(worker)
            assert worker.weights is not None
            rule = scheme.step(
                WorkerView(
                    worker.gradient.vector,
                    worker.weights.vector,
                    worker.index,
                    run.num_workers,
                    worker.num_steps,
                    run.progress(worker.next_number),
                )
            )
            yield from links.carry_out(rule)  # messages, which take time
            links.release()
            if self._split is not None:
                yield from self._split.hand_out(worker)
            worker.num_steps += 1
            worker.step_ends.append(self.kernel.now)
            worker.seconds_communicating += self.kernel.now - worker.computed_at
            if self._own is not None:
                yield from self._own.finish(worker)
        if self._own is not None:
            assert worker.weights is not None
            yield from links.carry_out(scheme.end(worker.weights.vector, worker.num_steps))
            links.release()
        if self.servers is not None:
            self.servers.leave(worker)

    def _compute(self, worker: VirtualWorker, links: VirtualLinks) -> Process[None]:
        worker.computing, worker.computed = True, Event()
        if worker.beside is None or worker.beside.has_happened:
            index, run, steps = worker.index, self._run, worker.num_steps
            rule = self._parts.scheme.beside(index, run.num_workers, steps, run.seed)
            worker.beside = None if rule is None else self.kernel.start(links.carry_out(rule))
        begun, cores = self.kernel.now, self._parts.cores
        alone = self._parts.step_times.seconds(worker.index, worker.num_steps)
        if self._split is not None:
            yield from self._split.compute(worker, alone)
            self._ready.append(worker)
            return
        worker.compute_seconds = alone + self._parts.seconds_of_ddp
        yield cores.busy(worker.compute_seconds)
        worker.computed_at = self.kernel.now
        if cores.shared:
            worker.compute_seconds = worker.computed_at - begun
        worker.spend("compute", worker.computed_at - worker.compute_seconds, worker.computed_at)
        self._ready.append(worker)


class VirtualData:
    """Shuffles of the data of all workers before some of their steps, as `traffic` says.

    A shuffle begins when all workers have come.
    """

    def __init__(self, parts: ClockParts, traffic: DataTraffic) -> None:
        self.traffic, self._profile, self._kernel = traffic, parts.profile, parts.kernel
        self._periods = [0 for _ in parts.workers]
        self._period = 0
        self._come, self._ended, self._first = 0, Event(), 0.0

    def fetch(self, worker: VirtualWorker) -> Process[None]:
        """Wait for the data of a worker's next step."""
        begun, period = self._kernel.now, self.traffic.order.period(worker.num_steps)
        if period != self._periods[worker.index]:
            self._periods[worker.index] = period
            if self._come == 0:
                self._first = self._kernel.now
            self._come, ended = self._come + 1, self._ended
            if self._come == len(self._periods):
                self._come, self._ended = 0, Event()
                self._kernel.start(self._shuffle(ended))
            yield ended
        worker.seconds_fetching += self._kernel.now - begun
        worker.spend("communicate", begun, self._kernel.now)

    def _shuffle(self, ended: Event) -> Process[None]:
        before, self._period = self._period, self._periods[0]
        shuffle = self.traffic.shuffle(before, self._period)
        num_bytes = shuffle.moved * shuffle.row_bytes
        yield self._kernel.after(shuffle_seconds(num_bytes, self._profile))
        self.traffic.moved.shuffle_bytes += int(num_bytes.sum())
        self.traffic.moved.shuffle_seconds += self._kernel.now - self._first
        self._kernel.happen(ended)


_WITHOUT_CONTENT = (type, ModuleType, BuiltinFunctionType, CodeType, FrameType)


def content_of(root: object, *, apart_from: Iterable[object] = ()) -> list[Tensor]:
    """Return each vector that can be reached from `root`, as one tensor over its whole storage.

    These are weights, statistics, states of optimizers, messages under way, and what suspended
    rules keep between two messages. Vectors that share a storage are one. Their order follows from
    how objects refer to each other, and so is the same for all that came about in the same way.
    What can be reached only through `apart_from` is left out.
    """
    found: dict[int, Tensor] = {}
    seen = {id(each) for each in apart_from}
    left = [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or not gc.is_tracked(thing) or isinstance(thing, _WITHOUT_CONTENT):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            storage = thing.untyped_storage()
            if storage.nbytes():
                shape = (storage.nbytes() // thing.element_size(),)
                whole = thing.new_empty(0).set_(storage, 0, shape, (1,))
                found.setdefault(storage.data_ptr(), whole)
        else:
            # A suspended generator gives all that its frame holds. A running frame, a module or a
            # class leads out of `root`, and so would the globals of a function.
            is_function = isinstance(thing, FunctionType)
            held = thing.__closure__ or () if is_function else gc.get_referents(thing)
            left.extend(reversed(held))
    return list(found.values())


def fill_content(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    """Copy the content of others, which `content_of` has listed, into the vectors of ours. Raises
    ValueError, and copies nothing, unless there are as many of the same sizes and types.
    """
    kinds, given = ([(each.dtype, each.shape) for each in side] for side in (ours, theirs))
    if kinds != given:
        raise ValueError(f"the content has {len(given)} vectors that do not fit {len(kinds)}")
    for mine, other in zip(ours, theirs, strict=True):
        mine.copy_(other)
