"""Data on the virtual clock: batches in the order of virtual time, shuffles among workers, and the
feed of a node.
"""

from collections.abc import Callable
from typing import Any

from paceline.clock.links import Process
from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Kernel
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.data.order import PartitionedOrder, SampleStream, check_sampler, is_map_style
from paceline.data.shuffle import DataTraffic
from paceline.errors import SettingError
from paceline.timing.profile import Exchanged, scatter_seconds, shuffle_seconds


def draw_from(loader: Any, run: RunSpec) -> tuple[Callable[[int, int], Any], int]:
    """Make a function that draws worker k's n-th batch; also return the batches in one pass.

    The order is the project's: batch n * num_workers + k of a seeded stream; the loader's own
    sampler is not used. Raises SettingError("data") for loaders other than a map-style DataLoader,
    because they read in advance, before it is known which worker computes next; and for samplers
    that choose.
    """
    if not is_map_style(loader):
        name = type(loader).__name__
        message = f"the virtual clock draws from a DataLoader over map-style data, not from {name}"
        raise SettingError("data", message)
    dataset, size = loader.dataset, loader.batch_size
    if size is None:
        raise SettingError("batch_size", "the virtual clock needs a DataLoader with a batch_size")
    check_sampler(loader)
    stream = SampleStream(len(dataset), run.seed)

    def draw(worker: int, n: int) -> Any:
        indices = stream.indices((n * run.num_workers + worker) * size, size)
        return loader.collate_fn([dataset[index] for index in indices.numpy().tolist()])

    return draw, max(1, stream.num_samples // size)


class _Meeting:
    """Meeting of `size` workers, which takes the `seconds()` that are asked when all have come."""

    def __init__(self, kernel: Kernel, size: int, seconds: Callable[[], float]) -> None:
        self._kernel, self._size, self._seconds = kernel, size, seconds
        self._come, self._ended, self._first = 0, Event(), 0.0
        self.longest = 0.0  # seconds of the worker that came first, over all meetings

    def join(self) -> Process[None]:
        if self._come == 0:
            self._first = self._kernel.now
        self._come, ended = self._come + 1, self._ended
        if self._come == self._size:
            self._come, self._ended = 0, Event()
            self._kernel.start(self._hold(ended))
        yield ended

    def _hold(self, ended: Event) -> Process[None]:
        yield self._kernel.after(self._seconds())
        self.longest += self._kernel.now - self._first
        self._kernel.happen(ended)


class VirtualData:
    """Data of all workers, which move before some of their steps, as `traffic` says."""

    def __init__(self, parts: ClockParts, traffic: DataTraffic) -> None:
        self.traffic, self._profile, self._kernel = traffic, parts.profile, parts.kernel
        self._periods = [0 for _ in parts.workers]
        self._period = 0
        self._shuffles = _Meeting(parts.kernel, len(parts.workers), self._shuffle)
        nodes = [parts.profile.node_of(worker.index) for worker in parts.workers]
        sizes = {node: nodes.count(node) for node in set(nodes)}
        self._feeds = {
            node: _Meeting(parts.kernel, size, lambda size=size: self._scatter(size - 1))
            for node, size in sizes.items()
        }

    def fetch(self, worker: VirtualWorker) -> Process[None]:
        """Wait for the data of a worker's next step."""
        begun, period = self._kernel.now, self.traffic.order.period(worker.num_steps)
        if period != self._periods[worker.index]:
            self._periods[worker.index] = period
            yield from self._shuffles.join()
            self.traffic.moved.shuffle_seconds = self._shuffles.longest
        if self.traffic.fed_bytes:
            yield from self._feeds[self._profile.node_of(worker.index)].join()
        worker.seconds_fetching += self._kernel.now - begun
        worker.spend("communicate", begun, self._kernel.now)

    def _shuffle(self) -> float:
        """Shuffle every copy of the data among the workers that share it; return the seconds that
        this takes.
        """
        order = self.traffic.order
        assert isinstance(order, PartitionedOrder)
        before, self._period = self._period, self._periods[0]
        exchanges: list[Exchanged] = []
        for copy in range(order.copies):
            shuffle = self.traffic.shuffle(copy, before, self._period)
            first = copy * order.members
            num_bytes = shuffle.moved * shuffle.row_bytes
            exchanges.append(Exchanged(range(first, first + order.members), num_bytes))
            self.traffic.moved.shuffle_bytes += int(num_bytes.sum())
        return shuffle_seconds(exchanges, self._profile)

    def _scatter(self, receivers: int) -> float:
        self.traffic.moved.feed_bytes += receivers * self.traffic.fed_bytes
        return scatter_seconds(self.traffic.fed_bytes, receivers, self._profile)
