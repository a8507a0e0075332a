"""Parameter servers on the virtual clock: their weights, and the answers under way."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from paceline.clock.run_spec import VectorSpec, server_specs
from paceline.clock.served_weights import ServedWeights
from paceline.clock.snapshot import Snapshot, join_shards
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.virtual_worker import Buffer, VirtualWorker
from paceline.scheme.counts import Counts


class VirtualServers:
    """All servers of a run. `served`: each server's part of the weights. `bounds`: each server's
    [first, last) of them.
    """

    def __init__(self, parts: ClockParts, vectors: VectorSpec, weights: Tensor) -> None:
        scheme, run, kernel = parts.scheme, parts.run, parts.kernel
        self.weights = weights
        self.bounds = vectors.bounds(scheme.servers)
        self._workers, self._pool = parts.workers, parts.pool
        self._counts = Counts(scheme, run.num_workers)
        self._statistics_pool = parts.statistics_pool
        self._pushed: dict[int, Buffer] = {}  # statistics of each worker's last push
        self.shares_statistics = False  # with workers, which do not change theirs in place
        self._shared = Buffer(weights)  # version that answers of a single server share
        self._answers: dict[int, Buffer] = {}  # under way, by worker
        self._granted: dict[int, bool] = {}
        self.served = [
            ServedWeights(
                scheme,
                spec,
                weights[first:last],
                gradient=partial(self._gradient, first, last),
                # statistics are sent to server 0 only
                statistics=self._statistics if spec.server == 0 else lambda _: torch.empty(0),
                seconds=lambda: kernel.now,
                numbers=self._numbers,
            )
            for spec, (first, last) in zip(
                server_specs(scheme, run, vectors), self.bounds, strict=True
            )
        ]

    @property
    def updates(self) -> int:
        """Number of updates of server 0's weights."""
        return self.served[0].report.updates

    @property
    def samples(self) -> int:
        """Number of samples, over all workers, whose gradients server 0 has applied."""
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
        """Return a copy of the weights."""
        return self.weights.clone()

    @property
    def statistics(self) -> list[Tensor]:
        """Statistics in each worker's last push; before the first push, those of worker 0."""
        pushed = self._pushed.values() or (self._workers[0].statistics,)
        return [each.vector for each in pushed]

    def begin(self, worker: VirtualWorker) -> bool:
        """Give the worker the first weights (version 0); return True if it may take a step."""
        first = self._counts.group_of(worker.index)[0]
        if worker.index == first:
            worker.versions = [0] * len(self.served)
            grants = [served.grant(worker.index) for served in self.served]
            self._granted[first] = grants[0]
        return self._granted[first]

    def keep_statistics(self, worker: VirtualWorker, mean: Tensor | None) -> None:
        """Keep the statistics in the worker's push to server 0. `mean`: that of its group."""
        if (before := self._pushed.get(worker.index)) is not None:
            self._statistics_pool.release(before)
        own, pool = worker.statistics, self._statistics_pool
        if mean is not None:
            self._pushed[worker.index] = Buffer(mean)
        else:
            kept = pool.share(own) if self.shares_statistics else pool.copy(own.vector)
            self._pushed[worker.index] = kept

    def arrive(self, server: int, worker: VirtualWorker) -> tuple[int, ...]:
        """Take the worker's push; return the workers that this server answers now."""
        if self._shared.holders > 1:  # copy the weights for them, before the server changes its own
            self._shared.move(self._pool.copy(self.weights).vector)
            self._pool.release(self._shared)
            self._shared = Buffer(self.weights)
        return self.served[server].arrive(worker.index, worker.versions[server])

    def answer(self, server: int, worker: VirtualWorker) -> None:
        """Put the server's present weights into the answer to the worker's push."""
        served = self.served[server]
        granted = served.grant(worker.index)
        if server == 0:
            self._granted[worker.index] = granted
        worker.versions[server] = served.report.updates
        if len(self.served) == 1:  # its weights are shared until they change
            self._release_message(worker)
            self._answers[worker.index] = self._pool.share(self._shared)
            return
        if worker.index not in self._answers:
            self._answers[worker.index] = self._pool.take()
        first, last = self.bounds[server]
        self._answers[worker.index].vector[first:last].copy_(served.weights)

    def collect(self, worker: VirtualWorker) -> tuple[Buffer, bool]:
        """Return the weights in the answers of all servers, and whether the worker may take another
        step.
        """
        self._release_message(worker)
        return self._answers.pop(worker.index), self._granted[worker.index]

    def _release_message(self, worker: VirtualWorker) -> None:
        """Release the buffer of the worker's message, which servers have answered."""
        if worker.gradient is not None and worker.message is worker.gradient.vector:
            worker.release_gradient(self._pool)
        worker.message = None

    def _statistics(self, worker: int) -> Tensor:
        return self._pushed[worker].vector

    def _numbers(self, worker: int) -> Sequence[float]:
        return self._workers[worker].take_numbers() or ()

    def _gradient(self, first: int, last: int, worker: int) -> Tensor:
        message = self._workers[worker].message
        assert message is not None
        return message[first:last]
