"""Parameter servers on the virtual clock: pushes wait in line, are served, and are answered.

On one machine messages are work of the server's process, as they are over loopback: it receives a
push, applies it and answers, then turns to the next. Between nodes the network carries messages
while the server works.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from paceline.engine.run_spec import RunPlan
from paceline.engine.served_weights import ServedWeights
from paceline.engine.snapshot import Snapshot, join_shards
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import ClusterProfile
from paceline.virtual_clock.buffers import Buffer, BufferPool
from paceline.virtual_clock.events import EventQueue
from paceline.virtual_clock.groups import Groups
from paceline.virtual_clock.network import Passage, VirtualNetwork
from paceline.virtual_clock.station import Station
from paceline.virtual_clock.worker import VirtualWorker


class VirtualServers:
    """`answered(worker, weights, granted)` is called when all answers to a push have reached its
    worker: the weights as each server had them, and whether it may take another step.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        plan: RunPlan,
        weights: Tensor,
        *,
        workers: Sequence[VirtualWorker],
        profile: ClusterProfile,
        events: EventQueue,
        pool: BufferPool,
        answered: Callable[[VirtualWorker, Buffer, bool], None],
    ) -> None:
        self.weights = weights
        self._workers, self._profile = workers, profile
        self._scheme, self._events, self._pool, self._answered = scheme, events, pool, answered
        self._accounting = Accounting(scheme, len(workers))
        self._bounds = plan.bounds(scheme.servers)
        network = VirtualNetwork(profile, len(workers), scheme.servers)
        self._network = None if profile.one_machine else network
        self._groups: Groups | None = None
        if scheme.group_size > 1:
            self._groups = Groups(
                scheme,
                workers,
                profile=profile,
                network=network,
                events=events,
                pool=pool,
                push=self._push,
                answered=answered,
            )
        self._stations = [Station(events) for _ in range(scheme.servers)]
        self._pushed: dict[int, Tensor] = {}  # statistics of each worker's last push
        self._held = Buffer(weights)  # of a single server, as long as they are of one version
        self._answers: dict[int, tuple[Buffer, int]] = {}  # content, and how many are under way
        self._granted: dict[int, bool] = {}
        self.served = [
            ServedWeights(
                scheme,
                server_plan,
                weights[first:last],
                gradient=partial(self._gradient, first, last),
                statistics=self._pushed.__getitem__ if server == 0 else _no_statistics,
                seconds=lambda: events.now,
            )
            for server, (server_plan, (first, last)) in enumerate(
                zip(plan.server_plans(scheme), self._bounds, strict=True)
            )
        ]

    @property
    def updates(self) -> int:
        """Of server 0's weights."""
        return self.served[0].report.updates

    @property
    def samples(self) -> int:
        """Over all workers, behind the weights."""
        return self.served[0].samples

    @property
    def diverged(self) -> bool:
        return any(each.report.diverged for each in self.served)

    @property
    def num_snapshots(self) -> int:
        return len(self.served[-1].snapshots)

    @property
    def snapshots(self) -> list[Snapshot]:
        shards = [each.snapshots for each in self.served]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]

    def mean(self) -> Tensor:
        """The weights, as a vector of its own."""
        return self.weights.clone()

    @property
    def statistics(self) -> list[Tensor]:
        """Of the workers that have pushed, as they were then; of one worker before any push."""
        return list(self._pushed.values()) or [self._workers[0].statistics.vector]

    def begin(self, worker: VirtualWorker) -> bool:
        """The worker holds version 0; may it take a step?"""
        first = self._accounting.group_of(worker.index)[0]
        if worker.index == first:
            worker.versions = [0] * len(self.served)
            grants = [served.grant(worker.index) for served in self.served]
            self._granted[first] = grants[0]
        return self._granted[first]

    def leave(self, worker: VirtualWorker) -> None:
        """The worker, which has been answered, sends no more."""
        for server, served in enumerate(self.served if worker.versions else []):
            self._answer_all(server, served.leave(worker.index))

    def push(self, worker: VirtualWorker) -> None:
        """Its message, by itself or with those of its group."""
        if self._groups is None:
            self._push(worker)
        else:
            self._groups.bring(worker)

    def _push(self, worker: VirtualWorker) -> None:
        message = worker.message
        assert message is not None
        for server, (first, last) in enumerate(self._bounds):
            size = (last - first) * message.element_size()
            body = size + (worker.statistics.vector.nbytes if server == 0 else 0)
            worker.bytes_sent += body
            self.served[server].report.bytes_received += body
            work = self._profile.server_seconds + size / self._profile.server_bandwidth
            if self._network is None:
                self._line_up(server, worker, self._profile.node_link.seconds(body) + work)
                continue
            passage = self._network.push(self._events.now, worker.index, server, body)
            self._spend(server, worker, self._events.now, passage)
            self._events.plan(passage.end, partial(self._line_up, server, worker, work))

    def _line_up(self, server: int, worker: VirtualWorker, work: float) -> None:
        done = partial(self._take, server, worker, self._events.now)
        self._stations[server].do(work, done)

    def _spend(self, server: int, worker: VirtualWorker, since: float, passage: Passage) -> None:
        """What it was until the passage began is waiting; by the first server alone."""
        if server == 0:
            worker.spend("wait", since, passage.start)
            worker.spend("communicate", *passage)

    def _take(self, server: int, worker: VirtualWorker, since: float, begun: float) -> None:
        self._spend(server, worker, since, Passage(begun, self._events.now))
        if server == 0:
            self._keep_statistics(worker)
        self._leave_version()
        served = self.served[server]
        self._answer_all(server, served.arrive(worker.index, worker.versions[server]))

    def _answer_all(self, server: int, workers: Iterable[int]) -> None:
        for each in workers:
            self._answer(server, self._workers[each])

    def _answer(self, server: int, worker: VirtualWorker) -> None:
        served = self.served[server]
        granted = served.grant(worker.index)
        worker.versions[server] = served.report.updates
        if server == 0:
            self._granted[worker.index] = granted
        self._answers[worker.index] = self._content(server, worker)
        served.report.bytes_sent += served.weights.nbytes
        worker.bytes_received += served.weights.nbytes
        if self._network is None:
            seconds = self._profile.node_link.seconds(served.weights.nbytes)
            done = partial(self._arrive, server, worker, self._events.now)
            self._stations[server].do(seconds, done, first=True)
            return
        now, size = self._events.now, served.weights.nbytes
        passage = self._network.answer(now, server, worker.index, size)
        self._spend(server, worker, now, passage)
        self._events.plan(passage.end, partial(self._deliver, worker))

    def _arrive(self, server: int, worker: VirtualWorker, since: float, begun: float) -> None:
        self._spend(server, worker, since, Passage(begun, self._events.now))
        self._deliver(worker)

    def _content(self, server: int, worker: VirtualWorker) -> tuple[Buffer, int]:
        """The answer as it is now: of a single server the weights themselves, until they change."""
        if len(self.served) == 1:
            self._let_go(worker)
            return self._pool.share(self._held), 1
        buffer, missing = self._answers.get(worker.index) or (self._pool.take(), len(self.served))
        first, last = self._bounds[server]
        buffer.vector[first:last].copy_(self.served[server].weights)
        return buffer, missing

    def _deliver(self, worker: VirtualWorker) -> None:
        buffer, missing = self._answers[worker.index]
        if missing > 1:
            self._answers[worker.index] = (buffer, missing - 1)
            return
        del self._answers[worker.index]
        self._let_go(worker)
        answered = self._answered if self._groups is None else self._groups.hand_on
        answered(worker, buffer, self._granted[worker.index])

    def _leave_version(self) -> None:
        """The server is about to change its weights in place: who has them gets a copy."""
        if self._held.holders > 1:
            self._held.move(self._pool.copy(self.weights).vector)
            self._pool.release(self._held)
            self._held = Buffer(self.weights)

    def _let_go(self, worker: VirtualWorker) -> None:
        """The push has been answered: what was pushed is not needed any more."""
        if worker.gradient is not None and worker.message is worker.gradient.vector:
            worker.let_go_of_gradient(self._pool)
        worker.message = None

    def _keep_statistics(self, worker: VirtualWorker) -> None:
        kept = self._pushed.setdefault(worker.index, torch.empty_like(worker.statistics.vector))
        kept.copy_(self._groups.statistics(worker) if self._groups else worker.statistics.vector)

    def _gradient(self, first: int, last: int, worker: int) -> Tensor:
        message = self._workers[worker].message
        assert message is not None
        return message[first:last]


def _no_statistics(worker: int) -> Tensor:
    """They go to server 0 alone."""
    return torch.empty(0)
