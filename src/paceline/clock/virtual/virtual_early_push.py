"""Pushes between nodes that leave by layer, during backward, on the virtual clock.

A part is sent to a server on another node when backward has completed this part and the part before
it has left, as over one connection. Latency is counted once, after the last part. If a server has
its whole push before backward has ended, the real gradient is computed at that instant, and the
server serves the push.
"""

from collections import deque
from collections.abc import Iterable

from paceline.clock.links import Process
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Moment
from paceline.clock.virtual.virtual_network import Passage
from paceline.clock.virtual.virtual_servers import VirtualServers
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.timing.workload import parts_within, share_of_step


class _Stream:
    """Parts of a push to one server that are complete before the end of backward. `parts`: bytes of
    each part, and time at which it is complete. `num_bytes`: bytes of the parts that have left so
    far. `left_at`: time at which the last part so far had left. `end`: event that happens when the
    process that sends these parts has ended. Times are virtual seconds.
    """

    def __init__(self, parts: Iterable[tuple[int, float]]) -> None:
        self.parts = deque(parts)
        self.num_bytes = 0
        self.left_at = 0.0
        self.abandoned = False
        self.end = Event()


class VirtualEarlyPush:
    """Carries pushes whose parts leave during backward."""

    def __init__(self, parts: ClockParts, servers: VirtualServers) -> None:
        self._network, self._kernel, sizes = parts.network, parts.kernel, parts.sizes
        self._streams: dict[tuple[int, int], _Stream] = {}  # of steps under way
        layers, num_weights = sizes.workload.parts(sizes.own_bytes), servers.bounds[-1][1]
        size = servers.weights.element_size()
        self._parts = [
            parts_within(
                layers,
                first / num_weights,
                last / num_weights,
                sizes.weights((last - first) * size),
            )
            for first, last in servers.bounds
        ]

    def begin(self, worker: VirtualWorker) -> Event:
        """Send parts while the worker computes, from now on until `computed_at`. Returns the event
        at which the worker's gradient is needed: either a server has its whole part of it, or
        backward ends. The first server always waits for the end of backward, because BatchNorm
        statistics are known only then.
        """
        needed, begun = Event(), self._kernel.now
        for server, parts in enumerate(self._parts):
            if self._network.inside(worker.index, server):
                continue
            timed = [
                (num_bytes, begun + worker.compute_seconds * share_of_step(ready))
                for num_bytes, ready in parts
            ]
            early = [(num_bytes, at) for num_bytes, at in timed if at < worker.computed_at]
            stream = self._streams[worker.index, server] = _Stream(early)
            complete = server > 0 and 0 < len(early) == len(parts)
            process = self._send(worker, server, stream, needed if complete else Event())
            stream.end = self._kernel.start(process)
        self._kernel.start(self._end_backward(worker, needed))
        return needed

    def push(self, worker: VirtualWorker, server: int, num_bytes: int) -> Process[Passage]:
        """Send the rest of a push of `num_bytes`, and wait for its arrival."""
        stream = self._streams.pop((worker.index, server), None)
        if stream is None:
            yield Moment(worker.computed_at)
            return (yield from self._network.push(worker.index, server, num_bytes))
        yield stream.end
        begun = max(self._kernel.now, worker.computed_at)
        if num_bytes > stream.num_bytes:
            yield Moment(begun)
            rest = num_bytes - stream.num_bytes
            yield from self._network.send_part(worker.index, server, rest)
            stream.left_at = self._kernel.now
        yield from self._network.finish_push(worker.index, server, num_bytes, stream.left_at)
        return Passage(begun, self._kernel.now)

    def end(self) -> None:
        """Stop sending the parts of all steps that are under way, because these steps are
        abandoned.
        """
        for stream in self._streams.values():
            stream.abandoned = True
        self._streams.clear()

    def _end_backward(self, worker: VirtualWorker, needed: Event) -> Process[None]:
        yield Moment(worker.computed_at)
        self._happen_once(needed)

    def _happen_once(self, event: Event) -> None:
        if not event.has_happened:
            self._kernel.happen(event)

    def _send(
        self, worker: VirtualWorker, server: int, stream: _Stream, complete: Event
    ) -> Process[None]:
        """Send the parts of a stream; `complete` happens after the last of them."""
        while stream.parts:
            yield Moment(max(self._kernel.now, stream.parts[0][1]))
            if stream.abandoned:
                return
            num_bytes = 0  # of all parts that are there
            while stream.parts and stream.parts[0][1] <= self._kernel.now:
                num_bytes += stream.parts.popleft()[0]
            yield from self._network.send_part(worker.index, server, num_bytes)
            stream.num_bytes += num_bytes
            stream.left_at = self._kernel.now
        self._happen_once(complete)
