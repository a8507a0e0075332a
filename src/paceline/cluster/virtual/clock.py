"""Drives a scheme's rule for many workers in the order of virtual time."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paceline.cluster.collective_cost import allreduce_seconds
from paceline.cluster.profile import ClusterProfile
from paceline.cluster.run_plan import RunPlan
from paceline.cluster.snapshot import Snapshot, join_shards
from paceline.cluster.step_times import StepTimes
from paceline.cluster.virtual.buffers import Buffer, BufferPool
from paceline.cluster.virtual.events import EventQueue
from paceline.cluster.virtual.meeting import Brought, Meeting
from paceline.cluster.virtual.replicas import Replicas
from paceline.cluster.virtual.servers import VirtualServers
from paceline.cluster.virtual.worker import VirtualWorker
from paceline.scheme.scheme import AbstractScheme, Adopt, Apply, Mean, Push

_TIMELINE_WORKERS = 16  # more rows than that no figure shows


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
        self._finished = self._granted = 0  # steps of all workers
        self._ending = self._diverged = False
        self._snapshots: list[Snapshot] = []
        allreduce = partial(
            allreduce_seconds, scheme.collective, workers=plan.workers, profile=profile
        )
        self._meeting = Meeting(self.pool, plan.workers, allreduce)
        self.servers: VirtualServers | None = None
        self._replicas: Replicas | None = None
        if scheme.servers:
            self.servers = VirtualServers(
                scheme,
                plan,
                weights.clone(),
                workers=self.workers,
                profile=profile,
                events=self.events,
                pool=self.pool,
                adopt=self._adopt,
            )
        else:
            segments = plan.segments
            self._replicas = Replicas(self.pool, weights, segments, plan.workers, shared=recycled)
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
        worker.step = self._scheme.step(gradient.vector)
        self._follow(worker, worker.send(None))

    def end(self) -> None:
        """Let what is under way arrive; no worker takes another step."""
        self._ending = True
        while self.next_worker() is not None:
            pass

    # what can be seen

    @property
    def updates(self) -> int:
        if self.servers is not None:
            return self.servers.served[0].report.updates
        return self._finished * self._plan.batch_size // self._images_per_update

    @property
    def samples(self) -> int:
        """Over all workers, behind the shared weights."""
        return self.updates * self._images_per_update

    @property
    def diverged(self) -> bool:
        served = self.servers.served if self.servers else []
        return self._diverged or any(each.report.diverged for each in served)

    @property
    def num_snapshots(self) -> int:
        served = self.servers.served[-1].snapshots if self.servers else self._snapshots
        return len(served)

    @property
    def snapshots(self) -> list[Snapshot]:
        if self.servers is None:
            return self._snapshots
        shards = [each.snapshots for each in self.servers.served]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]

    def shared(self) -> Snapshot:
        """What would be evaluated now: the servers' weights, or the mean over workers'."""
        if self.servers is not None:
            weights, statistics = self.servers.weights.clone(), self.servers.statistics
        else:
            assert self._replicas is not None
            weights = self._replicas.mean()
            statistics = [worker.statistics.vector for worker in self.workers]
        mean = torch.stack(list(statistics)).mean(0)
        return Snapshot(self.samples, self.updates, self.events.now, weights, mean)

    # steps

    @property
    def _images_per_update(self) -> int:
        return self._scheme.images_per_update(self._plan.batch_size, self._plan.workers)

    def _start(self, weights: Tensor) -> None:
        """Every worker holds the same weights, before the clock starts."""
        first = self.pool.copy(weights)
        for worker in self.workers:
            if self._replicas is None:
                worker.weights = self.pool.share(first)
            self._begin(worker, self.servers.begin(worker) if self.servers else self._grant())
        self.pool.release(first)

    def _grant(self) -> bool:
        budget = self._plan.num_steps
        granted = not self._diverged and (budget is None or self._granted < budget)
        self._granted += granted
        return granted

    def _begin(self, worker: VirtualWorker, granted: bool) -> None:
        if not granted or self._ending:
            return
        if self._replicas is not None:
            worker.weights = self._replicas.of[worker.index].weights
        worker.compute_seconds = self._times.seconds(worker.index, worker.finished)
        self.events.plan(
            self.events.now + worker.compute_seconds, partial(self._end_backward, worker)
        )

    def _end_backward(self, worker: VirtualWorker) -> None:
        worker.computed_at = self.events.now
        worker.spend("compute", worker.computed_at - worker.compute_seconds, worker.computed_at)
        self._ready = worker

    # the rule

    def _follow(self, worker: VirtualWorker, message: Any) -> None:
        if isinstance(message, Push):
            assert self.servers is not None
            assert worker.weights is not None
            self.pool.release(worker.weights)
            worker.weights = None  # the answer replaces them
            self.servers.push(worker, message.gradient)
        elif isinstance(message, Mean):
            self._bring(worker, message.value)
        else:
            self._conclude([(worker, message)])

    def _bring(self, worker: VirtualWorker, value: Tensor) -> None:
        overlapped = worker.gradient is not None and value is worker.gradient.vector
        about = Brought(worker.computed_at, worker.compute_seconds, overlapped)
        worker.bytes_sent += value.nbytes
        worker.bytes_received += value.nbytes
        brought = worker.give_gradient() if overlapped else self.pool.copy(value)
        end = self._meeting.bring(brought, about)
        worker.let_go_of_gradient(self.pool)
        if end is not None:
            now = self.events.now
            self.events.plan(max(end, now), partial(self._meet, now))

    def _meet(self, complete_at: float) -> None:
        mean = self._meeting.mean()
        outcomes = []
        for worker in self.workers:
            worker.spend("wait", worker.computed_at, complete_at)
            worker.spend("communicate", complete_at, self.events.now)
            outcomes.append((worker, worker.send(mean)))
        self._conclude(outcomes)
        self._meeting.leave()

    def _adopt(self, worker: VirtualWorker, answer: Buffer, granted: bool) -> None:
        """A push has been answered by every server."""
        outcome = worker.send(answer.vector)
        assert isinstance(outcome, Adopt)
        worker.weights = answer
        if outcome.weights is not answer.vector:
            worker.weights = self.pool.copy(outcome.weights)
            self.pool.release(answer)
        self._finish(worker)
        self._begin(worker, granted)

    def _conclude(self, outcomes: Sequence[tuple[VirtualWorker, Any]]) -> None:
        """Steps that end now, by the workers' own optimizers."""
        assert self._replicas is not None
        gradients: dict[int, tuple[Tensor, set[int]]] = {}
        for worker, outcome in outcomes:
            assert isinstance(outcome, Apply)
            gradients.setdefault(id(outcome.gradient), (outcome.gradient, set()))[1].add(
                worker.index
            )
        before = self.updates
        rate = self._plan.learning_rate
        for gradient, workers in gradients.values():
            self._replicas.apply(workers, gradient, rate.factor(self.samples) if rate else 1.0)
        for worker, _ in outcomes:
            worker.let_go_of_gradient(self.pool)
            self._finish(worker)
        self._keep_snapshots(before)
        for worker, _ in outcomes:
            self._begin(worker, self._grant())

    def _finish(self, worker: VirtualWorker) -> None:
        self._finished += 1
        worker.finished += 1
        worker.step_ends.append(self.events.now)
        worker.seconds_communicating += self.events.now - worker.computed_at

    def _keep_snapshots(self, before: int) -> None:
        if any(step in self._plan.snapshot_steps for step in range(before + 1, self.updates + 1)):
            snapshot = self.shared()
            self._snapshots.append(snapshot)
            self._diverged = not bool(snapshot.weights.isfinite().all())
