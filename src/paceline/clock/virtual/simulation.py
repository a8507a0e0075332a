"""First pass of the virtual clock: who does what when, without vectors.

    simulation = Simulation(scheme, run, profile, step_times)
    for operation in simulation.operations():
        ...  # to be carried out on vectors, at simulation.kernel.now

A rule never depends on values, so it runs here with stand-ins for its vectors.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from paceline.clock.reports import StrategyReport
from paceline.clock.run_spec import RunSpec, StepNumbers
from paceline.clock.virtual.kernel import Joint, Operation, Process
from paceline.clock.virtual.message_sizes import VectorSizes
from paceline.clock.virtual.simulated_messages import Means, Neighbours
from paceline.clock.virtual.simulated_servers import SimulatedServers
from paceline.clock.virtual.simulation_parts import SimulationParts
from paceline.clock.virtual.unknown import GRADIENT, UNKNOWN
from paceline.clock.virtual.virtual_data import VirtualData
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.scheme import rule as messages
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme, Step, WorkerView, next_message
from paceline.timing.profile import ClusterProfile
from paceline.timing.step_times import StepTimes


class Simulation:
    """Course of a run on a modelled cluster, which is as long as its stream of operations is read.

    `sizes`: those of the vectors; without training, one weight per server. `workers`: their course
    so far; `snapshots`: samples and virtual seconds of each. `ending`: set it to let no worker take
    another step, while messages under way are delivered. `diverged`: whoever carries out the
    operations sets it where workers have weights of their own, and the `diverged` of a server's
    report where servers have them; the run then ends.
    """

    def __init__(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        profile: ClusterProfile,
        step_times: StepTimes,
        sizes: VectorSizes | None = None,
    ) -> None:
        sizes = sizes or VectorSizes(max(1, scheme.servers), [1] * scheme.servers)
        run = replace(run, batch_size=run.batch_size or 1)
        parts = SimulationParts(scheme, run, profile, sizes, seed=step_times.seed)
        self.scheme, self.run, self.kernel, self.workers = scheme, run, parts.kernel, parts.workers
        self.ending = self.diverged = False
        self.snapshots, self._network, self._cores = parts.snapshots, parts.network, parts.cores
        self._split, self._step_times = parts.split, step_times
        self._counts = Counts(scheme, run.num_workers)
        by_ddp = scheme.carried_out_by_ddp and run.num_workers > 1 and run.split_step is None
        self._seconds_of_ddp = profile.added_seconds("ddp") if by_ddp else 0.0
        self._means, self._neighbours, self._data = Means(parts), Neighbours(parts), None
        if run.traffic:
            self._data = VirtualData(run.traffic, parts.profile, parts.kernel, run.num_workers)
        self.servers = SimulatedServers(parts) if scheme.servers else None
        self._applying = Joint(self.kernel, self._apply_all)
        self._finishing = Joint(self.kernel, self._finish_all)
        self._num_finished = 0  # steps of all workers with weights of their own
        self._num_passed = [0] * run.num_workers  # snapshots, by worker
        self._num_reached: dict[int, int] = {}  # workers, by samples of a snapshot

    def operations(self) -> Iterator[Operation | None]:
        """Yield the operations of the run in order, and None before virtual time advances."""
        self._begin_workers()
        self.kernel.begin(self._train(worker) for worker in self.workers)
        return self.kernel.run()

    def completed(self) -> "Simulation":
        """Read the run to its end without its operations; return it."""
        deque(self.operations(), maxlen=0)
        return self

    def _begin_workers(self) -> None:
        """Let all workers have their first weights, before the clock runs."""
        draw = itertools.count().__next__
        self._numbers = [StepNumbers(self._counts, draw) for _ in self.workers]
        for worker, numbers in zip(self.workers, self._numbers, strict=True):
            if self.servers is not None:
                worker.granted = self.servers.begin(worker)
            if self.scheme.own_weights:
                worker.step_numbers = [numbers.next()]
            if self._split is not None:
                self._split.begin(worker)

    # the life of a worker

    def _train(self, worker: VirtualWorker) -> Process[None]:
        """Take a worker's steps, each from a batch to new weights, then its rule's end."""
        scheme = self.scheme
        while self._has_step(worker):
            if self.ending:  # messages under way are delivered, and no step is taken
                return
            if self._data is not None:
                yield from self._data.fetch(worker)
            yield from self._compute(worker)
            if self.ending:
                return
            if self._split is not None:
                yield from self._split.gather(worker)
            progress = self.run.progress(worker.next_number)
            view = (worker.index, len(self.workers), worker.num_steps, progress)
            yield from self._follow(worker, scheme.step(WorkerView(GRADIENT, UNKNOWN, *view)))
            yield Operation("end_rule", worker.index)
            if self._split is not None:
                yield from self._split.hand_out(worker)
            worker.num_steps += 1
            worker.step_ends.append(self.kernel.now)
            worker.seconds_communicating += self.kernel.now - worker.computed_at
            if scheme.own_weights:  # before any worker begins another step at this instant
                yield from self._finishing.join(worker)
        if scheme.own_weights:
            yield Operation("end_run", worker.index)
            yield from self._follow(worker, scheme.end(UNKNOWN, worker.num_steps))
            yield Operation("end_rule", worker.index)
        if self.servers is not None:
            yield from self.servers.leave(worker)

    def _has_step(self, worker: VirtualWorker) -> bool:
        """Return True if the run has a step left for the worker."""
        if not self.scheme.own_weights:
            return worker.granted
        return not (self.diverged or self.run.ends_before(worker.next_number))

    def _compute(self, worker: VirtualWorker) -> Process[None]:
        """Compute a step, which takes its time."""
        yield Operation("begin", worker.index)
        worker.computing = True
        if worker.beside is None or worker.beside.has_happened:
            beside = (worker.index, len(self.workers), worker.num_steps, self.run.seed)
            rule, worker.beside = self.scheme.beside(*beside), None
            if rule is not None:
                worker.beside = yield from self.kernel.start(self._follow(worker, rule))
        begun, alone = self.kernel.now, self._step_times.seconds(worker.index, worker.num_steps)
        if self._split is not None:
            yield from self._split.compute(worker, alone)
        else:
            worker.compute_seconds = alone + self._seconds_of_ddp
            yield self._cores.busy(worker.compute_seconds)
            worker.computed_at = now = self.kernel.now
            if self._cores.shared:
                worker.compute_seconds = now - begun
            worker.spend("compute", now - worker.compute_seconds, now)
        if not self.ending:
            yield Operation("computed", worker.index)
        worker.computing = False

    def _follow(self, worker: VirtualWorker, rule: Step) -> Process[None]:
        """Carry out each message that a rule yields, and send it an answer when its own comes."""
        answer: Any = None
        while (message := next_message(rule, answer)) is not None:
            answer = UNKNOWN
            match message:
                case messages.Mean(value):
                    yield from self._means.mean(worker, of_gradient=value is GRADIENT)
                case messages.NeighbourMean(_, receivers, senders):
                    yield from self._neighbours.mean(worker, receivers, senders)
                case messages.PairMean(partner):
                    yield from self._neighbours.pair(worker, self.workers[partner])
                case messages.Push():
                    assert self.servers is not None
                    yield from self.servers.push(worker)
                case messages.Apply():
                    yield from self._applying.join(worker)
                case messages.Adopt():
                    yield Operation("adopt", worker.index)
                case messages.Kept(number):
                    answer = [UNKNOWN] * number
                case messages.Keep():
                    pass
                case _:
                    raise NotImplementedError

    def _apply_all(self, workers: Sequence[VirtualWorker]) -> Process[None]:
        yield Operation("apply", tuple(worker.index for worker in workers))

    def _finish_all(self, workers: Sequence[VirtualWorker]) -> Process[None]:
        """Count the steps that workers have finished at one instant, and reach snapshots."""
        run, averaged = self.run, self.run.sample_decay is not None and not self.scheme.servers
        self._num_finished += len(workers)
        by_images: dict[int, list[int]] = {}  # where equal, averages take them in together
        for worker in workers:
            worker.step_numbers.append(self._numbers[worker.index].next())
            before, after = map(run.samples_at, worker.step_numbers[-2:])
            by_images.setdefault(after - before, []).append(worker.index)
        for images, together in by_images.items() if averaged else ():
            yield Operation("average", tuple(together), images)
        reaching: dict[int, list[int]] = {}
        for worker in () if self.scheme.servers else workers:
            passed = run.passed(self._num_passed[worker.index], worker.next_number)
            self._num_passed[worker.index] += len(passed)
            for samples in passed:
                reaching.setdefault(samples, []).append(worker.index)
        for samples, reached_by in sorted(reaching.items()):
            number = self._num_reached.pop(samples, 0) + len(reached_by)
            complete = number == len(self.workers)
            if complete:
                self.snapshots.append((samples, self.kernel.now))
            else:
                self._num_reached[samples] = number
            yield Operation("reach", tuple(reached_by), samples, complete)

    # observations

    @property
    def updates(self) -> int:
        """Number of updates of server 0's weights, or mean number of those of a worker's."""
        if self.servers is not None:
            return self.servers.pushes[0].report.updates
        return self._num_finished // len(self.workers)

    @property
    def samples(self) -> int:
        """Samples over all workers that have been applied to the weights of the first server, or to
        those of the workers.
        """
        if self.servers is not None:
            return self.servers.pushes[0].samples
        whole = self.updates * len(self.workers)
        return self.run.samples_at(whole if self.scheme.equal_steps else self._num_finished)

    @property
    def has_diverged(self) -> bool:
        reports = [each.report for each in self.servers.pushes] if self.servers else []
        return self.diverged or any(each.diverged for each in reports)

    def batches_behind(self, worker: VirtualWorker) -> int:
        """Count the batches of all workers in the weights that this one knows."""
        if self.scheme.own_weights:
            return worker.next_number
        first = self.workers[self._counts.group_of(worker.index)[0]]  # it speaks for its group
        return self._counts.batches(first.versions[0], self.run.num_steps)

    def busy_seconds(self) -> dict[str, float]:
        """Return the virtual seconds in which each link or server that is modelled was busy."""
        links = {"all-reduce": self._means.busy_seconds, **self._network.busy_seconds()}
        working = self.servers.busy_seconds() if self.servers else {}
        return {**links, **working, **(self._split.busy_seconds() if self._split else {})}

    def report(self) -> StrategyReport:
        """Return a report without digests of weights."""
        return StrategyReport(
            counted=sum(worker.num_steps > 0 for worker in self.workers),
            updates=self.updates,
            diverged=self.has_diverged,
            workers=[worker.report() for worker in self.workers],
            servers=[each.report for each in self.servers.pushes] if self.servers else [],
        )
