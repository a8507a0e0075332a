"""Data on the virtual clock: batches in the order of virtual time, and shuffles among workers."""

from collections.abc import Callable
from typing import Any

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Process
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.data.order import SampleStream, check_sampler, is_map_style
from paceline.data.shuffle import DataTraffic
from paceline.errors import SettingError
from paceline.timing.profile import shuffle_seconds


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
            yield from self._join()
        worker.seconds_fetching += self._kernel.now - begun
        worker.spend("communicate", begun, self._kernel.now)

    def _join(self) -> Process[None]:
        if self._come == 0:
            self._first = self._kernel.now
        self._come, ended = self._come + 1, self._ended
        if self._come == len(self._periods):
            self._come, self._ended = 0, Event()
            self._kernel.start(self._shuffle(ended))
        yield ended

    def _shuffle(self, ended: Event) -> Process[None]:
        before, self._period = self._period, self._periods[0]
        shuffle = self.traffic.shuffle(before, self._period)
        num_bytes = shuffle.moved * shuffle.row_bytes
        yield self._kernel.after(shuffle_seconds(num_bytes, self._profile))
        self.traffic.moved.shuffle_bytes += int(num_bytes.sum())
        self.traffic.moved.shuffle_seconds += self._kernel.now - self._first
        self._kernel.happen(ended)
