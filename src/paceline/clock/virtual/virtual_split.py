"""Split workers (whose networks are divided over several processes) on the virtual clock: what the
processes of a worker send each other, and how long it takes.

A worker's gradient is computed on the whole network; only time and bytes are modelled.
"""

from collections.abc import Sequence

from paceline.clock.virtual.kernel import Cores, Kernel, Process
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.exchange.collectives import Volume, Volumes, collective
from paceline.scheme.rule import AbstractScheme
from paceline.timing.profile import (
    ClusterProfile,
    of_first_processes,
    of_like_processes,
    seconds_inside,
)
from paceline.timing.split_plan import ShardMessages, SplitStep


class VirtualSplit:
    """The processes of all workers, each of which is split as `step` says.

    `of_processes`: profile in which each process counts as a worker. `profile`: profile for
    messages of the first processes, which speak for their workers. `by_parts`: True if each process
    averages its own part of the gradients with other workers; False if the first process has all
    gradients, and sends the weights to the other processes after each step.
    """

    def __init__(
        self,
        step: SplitStep,
        scheme: AbstractScheme,
        of_processes: ClusterProfile,
        workers: int,
        cores: Cores,
        kernel: Kernel,
    ) -> None:
        self.by_parts = scheme.carried_out_by_ddp
        self.profile = of_first_processes(of_processes, step.shards)
        self._step, self._of_processes, self._workers = step, of_processes, workers
        self._native, self._cores, self._kernel = collective(scheme.collective), cores, kernel
        self._activation_seconds = self._seconds(step.activations)
        self._seconds_inside = [0.0] * workers

    def busy_seconds(self) -> dict[str, float]:
        """Return the seconds in which the processes of the busiest worker exchanged."""
        return {"inside a worker": max(self._seconds_inside)}

    def begin(self, worker: VirtualWorker) -> None:
        """Count the bytes of the first weights, which are handed out before the clock starts."""
        if not self.by_parts:
            _count(worker, self._step.from_first)

    def compute(self, worker: VirtualWorker, alone: float) -> Process[None]:
        """Compute a step that takes one process `alone` seconds, and exchange its activations.

        Each process computes an equal share. In a real step activations are exchanged between
        layers; here all exchanges of a step follow its compute.
        """
        begun, step = self._kernel.now, self._step
        num_busy = step.shards if self._cores.shared else 1
        yield from [self._cores.busy(alone / step.shards) for _ in range(num_busy)]
        worker.compute_seconds = self._kernel.now - begun
        worker.spend("compute", begun, self._kernel.now)
        yield from self._exchange(worker, self._activation_seconds)
        worker.computed_at = self._kernel.now

    def gather(self, worker: VirtualWorker) -> Process[None]:
        """Count a step's activations; bring its gradient to the process that drives the rule."""
        worker.activation_bytes += self._step.activation_bytes
        worker.seconds_communicating += self._activation_seconds
        return self._pass(worker, self._step.to_first)

    def hand_out(self, worker: VirtualWorker) -> Process[None]:
        """Send the weights from the first process to the others."""
        return self._pass(worker, self._step.from_first)

    def mean_seconds(self, num_bytes: int) -> float:
        """Model the seconds until all processes have the means of their own part of a gradient.

        Gradients of layers divided by images are averaged over all processes; then the other
        gradients are averaged over the processes with the same slices.
        """
        shards, profile = self._step.shards, self._of_processes
        by_all, by_alike = self._parts(num_bytes)
        alike = of_like_processes(profile, self._workers, shards)
        seconds = self._native.seconds(by_all, self._workers * shards, profile) if by_all else 0.0
        if by_alike and self._workers > 1:
            seconds += self._native.seconds(by_alike, self._workers, alike)
            seconds -= profile.added_seconds("allreduce") if by_all else 0.0  # once a step
        return seconds

    def mean_volumes(self, length: int) -> Volumes:
        """Return what the processes of each worker send together for a gradient [length]."""
        shards = self._step.shards
        by_all, by_alike = self._parts(length)
        of_all = self._native.volumes(self._workers * shards, by_all)
        of_alike = self._native.volumes(self._workers, by_alike)
        return tuple(
            _together([*of_all[index * shards : (index + 1) * shards], *[own] * shards])
            for index, own in enumerate(of_alike)
        )

    def _parts(self, size: int) -> tuple[int, int]:
        """Return how much of `size` is averaged over all processes, and how much each process
        averages with those that have the same slices.
        """
        step = self._step
        by_all = size * step.summed // step.num_weights
        return by_all, size * (step.sliced + step.repeated) // step.num_weights

    def _seconds(self, exchanges: Sequence[ShardMessages]) -> float:
        where = (self._of_processes, self._workers, self._step.shards)
        return sum(seconds_inside(each, *where) for each in exchanges)

    def _pass(self, worker: VirtualWorker, exchanges: Sequence[ShardMessages]) -> Process[None]:
        if exchanges and not self.by_parts:
            yield from self._exchange(worker, self._seconds(exchanges))
            _count(worker, exchanges)

    def _exchange(self, worker: VirtualWorker, seconds: float) -> Process[None]:
        begun = self._kernel.now
        yield self._kernel.after(seconds)
        worker.spend("communicate", begun, self._kernel.now)
        self._seconds_inside[worker.index] += self._kernel.now - begun


def _count(worker: VirtualWorker, exchanges: Sequence[ShardMessages]) -> None:
    """Count messages between the worker's processes, which it both sends and receives."""
    num_bytes = sum(each.num_senders * each.num_bytes for each in exchanges)
    worker.bytes_sent += num_bytes
    worker.bytes_received += num_bytes


def _together(volumes: Sequence[Volume]) -> Volume:
    return Volume(sum(each.sent for each in volumes), sum(each.received for each in volumes))
