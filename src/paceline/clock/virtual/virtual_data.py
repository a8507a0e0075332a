"""Shuffles of the data of all workers on the virtual clock."""

from typing import TYPE_CHECKING

from paceline.clock.virtual.kernel import Event, Kernel, Process
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.timing.profile import ClusterProfile, shuffle_seconds

if TYPE_CHECKING:  # torch takes seconds
    from paceline.data.shuffle import DataTraffic


class VirtualData:
    """Shuffles of the data of all workers before some of their steps, as `traffic` says.

    A shuffle begins when all workers have come.
    """

    def __init__(
        self, traffic: "DataTraffic", profile: ClusterProfile, kernel: Kernel, workers: int
    ) -> None:
        self.traffic, self._profile, self._kernel = traffic, profile, kernel
        self._periods = [0] * workers
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
                yield from self._kernel.start(self._shuffle(ended))
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
