"""Drives a scheme's rule for many workers in the order of virtual time."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paceline.engine.run_spec import RunPlan
from paceline.engine.snapshot import Snapshot
from paceline.exchange.find_collective import collective
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme, Adopt, Apply, Mean, PairMean, Push, WorkerView
from paceline.timing.profile import ClusterProfile
from paceline.timing.step_times import StepTimes
from paceline.virtual_clock.buffers import Buffer, BufferPool
from paceline.virtual_clock.events import EventQueue
from paceline.virtual_clock.meeting import Meeting
from paceline.virtual_clock.own_weights import OwnWeights
from paceline.virtual_clock.servers import VirtualServers
from paceline.virtual_clock.worker import VirtualWorker

_TIMELINE_WORKERS = 16  # more rows than that no figure shows
Outcome = tuple[VirtualWorker, Any]  # and what its rule is answered with


class VirtualClock:
    """`next_worker()` is the worker whose backward ends next: compute its gradient on its weights,
    and hand it to `finish_step`. None when no worker may take another step.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        plan: RunPlan,
        *,
        profile: ClusterProfile,
        step_times: StepTimes,
        weights: Tensor,
        statistics: Tensor,
        recycled: bool = True,
    ) -> None:
        self.events = EventQueue()
        self.pool = BufferPool(weights, recycled=recycled)
        self._scheme, self._plan, self._times = scheme, plan, step_times
        own = BufferPool(statistics)
        self.workers = [VirtualWorker(k, own.copy(statistics)) for k in range(plan.workers)]
        for worker in self.workers if plan.workers <= _TIMELINE_WORKERS else ():
            worker.timeline = []
        self._ready: VirtualWorker | None = None  # its backward has just ended
        self._ending = False
        chosen = collective(scheme.collective)
        self._meeting = Meeting(
            self.pool,
            self.workers,
            seconds=partial(chosen.seconds, workers=plan.workers, profile=profile),
            volumes=partial(
                chosen.volumes, plan.workers, workers_per_node=profile.workers_per_node
            ),
            events=self.events,
            met=lambda mean: self._go_on([(worker, mean) for worker in self.workers]),
        )
        self.servers: VirtualServers | None = None
        if scheme.servers:
            self.servers = VirtualServers(
                scheme,
                plan,
                weights.clone(),
                workers=self.workers,
                profile=profile,
                events=self.events,
                pool=self.pool,
                answered=self._take_answer,
            )
        self._own: OwnWeights | None = None
        if Accounting(scheme, plan.workers).own_weights:
            self._own = OwnWeights(
                scheme,
                plan,
                weights,
                workers=self.workers,
                profile=profile,
                events=self.events,
                pool=self.pool,
                recycled=recycled,
                paired=lambda worker: self._go_on([(worker, None)]),
            )
        self._start(weights)

    # what a Trainer does

    def next_worker(self) -> VirtualWorker | None:
        while self._ready is None and len(self.events):
            self.events.go_on()
        ready, self._ready = self._ready, None
        return ready

    def finish_step(self, worker: VirtualWorker, gradient: Buffer) -> None:
        """`gradient` is the clock's from now on."""
        worker.gradient = gradient
        worker.step = self._scheme.step(self._turn(worker, gradient))
        self._go_on([(worker, None)])

    def end(self) -> None:
        """Let what is under way arrive; no worker takes another step."""
        self._ending = True
        while self.next_worker() is not None:
            pass

    # what can be seen

    @property
    def holder(self) -> VirtualServers | OwnWeights:
        """Of the weights that are evaluated."""
        holder = self.servers or self._own
        assert holder is not None
        return holder

    def shared(self) -> Snapshot:
        """What would be evaluated now: the servers' weights, or the mean over workers'."""
        holder = self.holder
        statistics = torch.stack(holder.statistics).mean(0)
        return Snapshot(holder.samples, holder.updates, self.events.now, holder.mean(), statistics)

    # steps

    def _start(self, weights: Tensor) -> None:
        """Every worker holds the same weights, before the clock starts."""
        first = self.pool.copy(weights)
        for worker in self.workers:
            if self._own is None:
                worker.weights = self.pool.share(first)
            if self.servers is not None:
                worker.granted = self.servers.begin(worker)
        for worker in self.workers:
            self._begin(worker)
        self.pool.release(first)

    def _may_begin(self, worker: VirtualWorker) -> bool:
        if self._own is None:
            return worker.granted
        return not (self.holder.diverged or self._own.ended(worker))

    def _begin(self, worker: VirtualWorker) -> None:
        if self._own is not None:
            worker.weights = self._own.begin(worker)
        if not self._may_begin(worker):
            self._leave(worker)
            return
        if self._ending:
            return
        worker.computing = True
        worker.compute_seconds = self._times.seconds(worker.index, worker.finished)
        self.events.plan(
            self.events.now + worker.compute_seconds, partial(self._end_backward, worker)
        )

    def _leave(self, worker: VirtualWorker) -> None:
        if self._own is not None:
            assert worker.weights is not None
            worker.ended = True
            worker.step = self._scheme.end(worker.weights.vector, worker.finished)
            self._go_on([(worker, None)])
        elif self.servers is not None:
            self.servers.leave(worker)

    def _end_backward(self, worker: VirtualWorker) -> None:
        worker.computing, worker.computed_at = False, self.events.now
        worker.spend("compute", worker.computed_at - worker.compute_seconds, worker.computed_at)
        self._ready = worker

    def _turn(self, worker: VirtualWorker, gradient: Buffer) -> WorkerView:
        assert worker.weights is not None
        return WorkerView(
            gradient=gradient.vector,
            weights=worker.weights.vector,
            index=worker.index,
            num_workers=self._plan.workers,
            num_steps=worker.finished,
            progress=self._plan.progress(worker.number),
        )

    def _end_rules(self, ended: Sequence[VirtualWorker]) -> None:
        for worker in ended:
            worker.let_go_of_gradient(self.pool)
            worker.let_go_of_answer(self.pool)
        gone = [worker for worker in ended if worker.ended]
        self._end_steps([worker for worker in ended if not worker.ended])
        if self.servers is not None:
            for worker in gone:
                self.servers.leave(worker)

    def _end_steps(self, ended: Sequence[VirtualWorker]) -> None:
        for worker in ended:
            worker.finished += 1
            worker.step_ends.append(self.events.now)
            worker.seconds_communicating += self.events.now - worker.computed_at
        if self._own is not None:
            self._own.finish(ended)
        for worker in ended:
            self._begin(worker)

    # the rule

    def _go_on(self, answered: Iterable[Outcome]) -> None:
        """Each of these rules to its next communication, or to its end."""
        while answered:
            applying: list[Outcome] = []
            following: list[Outcome] = []
            ended = []
            for worker, answer in answered:
                message = worker.send(answer)
                if message is None:
                    ended.append(worker)
                elif isinstance(message, Apply):
                    applying.append((worker, message.gradient))
                elif isinstance(message, Adopt):
                    self._adopt(worker, message.weights)
                    following.append((worker, None))
                else:
                    self._communicate(worker, message)
            self._end_rules(ended)
            answered = [*(self._own.apply(applying) if self._own else ()), *following]

    def _communicate(self, worker: VirtualWorker, message: Any) -> None:
        if isinstance(message, Mean):
            self._meeting.bring(worker, message.value)
            return
        if isinstance(message, PairMean):
            assert self._own is not None
            self._own.pairing.ask(worker, message.partner)
            return
        assert isinstance(message, Push)
        assert self.servers is not None
        worker.message = message.value
        if self._own is None:
            assert worker.weights is not None
            self.pool.release(worker.weights)
            worker.weights = None  # the answer replaces them
        self.servers.push(worker)

    def _take_answer(self, worker: VirtualWorker, answer: Buffer, granted: bool) -> None:
        """A push has been answered by every server."""
        worker.answer, worker.granted = answer, granted
        self._go_on([(worker, answer.vector)])

    def _adopt(self, worker: VirtualWorker, weights: Tensor) -> None:
        if self._own is not None:
            self._own.hold(worker, weights)
            return
        answer = worker.answer
        if answer is not None and weights is answer.vector:
            worker.weights, worker.answer = answer, None
        else:
            worker.weights = self.pool.copy(weights)
