"""Pushes between nodes that leave by layer, during backward, on the virtual clock.

To each server of another node a part begins when it is there and the one before it has left, as
over one connection; latency passes once, behind the last of them. A push is served no earlier than
at the end of the step's backward: its gradient is computed then.
"""

from collections import deque
from collections.abc import Sequence

from paceline.engine.links import Process
from paceline.timing.backward import Bucket, parts_within, share_of_step
from paceline.virtual_clock.kernel import Event, Kernel, Moment
from paceline.virtual_clock.message_sizes import MessageSizes
from paceline.virtual_clock.virtual_network import Passage, VirtualNetwork
from paceline.virtual_clock.virtual_worker import VirtualWorker


class _Stream:
    """Parts of a push to one server that have left before the end of backward.

    `left_at`: when the last of them had [virtual seconds].
    """

    def __init__(self) -> None:
        self.num_bytes = 0
        self.left_at = 0.0
        self.abandoned = False
        self.end = Event()


class VirtualEarlyPush:
    """Carries pushes whose parts leave during backward.

    `bounds`: each server's [first, last) of the weights, of `weight_bytes` each.
    """

    def __init__(
        self,
        bounds: Sequence[tuple[int, int]],
        weight_bytes: int,
        *,
        network: VirtualNetwork,
        sizes: MessageSizes,
        kernel: Kernel,
    ) -> None:
        self._network, self._kernel = network, kernel
        self._streams: dict[tuple[int, int], _Stream] = {}  # of steps under way
        parts, num_weights = sizes.parts(), bounds[-1][1]
        self._parts = [
            parts_within(
                parts,
                first / num_weights,
                last / num_weights,
                sizes.weights((last - first) * weight_bytes),
            )
            for first, last in bounds
        ]

    def begin(self, worker: VirtualWorker) -> None:
        """Send parts while the worker computes, from now on for its `compute_seconds`."""
        for server, parts in enumerate(self._parts):
            if not self._network.inside(worker.index, server):
                stream = self._streams[worker.index, server] = _Stream()
                early = deque(part for part in parts if part.ready < 1)
                process = self._send(worker, server, early, stream)
                stream.end = self._kernel.start(process)

    def push(self, worker: int, server: int, num_bytes: int) -> Process[Passage]:
        """Send the rest of a push of `num_bytes`, and wait for its arrival."""
        stream = self._streams.pop((worker, server), None)
        if stream is None:
            return (yield from self._network.push(worker, server, num_bytes))
        begun = self._kernel.now
        yield stream.end
        if num_bytes > stream.num_bytes:
            yield from self._network.send_part(worker, server, num_bytes - stream.num_bytes)
            stream.left_at = self._kernel.now
        yield from self._network.finish_push(worker, server, num_bytes, stream.left_at)
        return Passage(begun, self._kernel.now)

    def end(self) -> None:
        """Send no more of steps that are under way: they are abandoned."""
        for stream in self._streams.values():
            stream.abandoned = True
        self._streams.clear()

    def _send(
        self, worker: VirtualWorker, server: int, parts: deque[Bucket], stream: _Stream
    ) -> Process[None]:
        begun, seconds = self._kernel.now, worker.compute_seconds
        while parts:
            ready_at = begun + seconds * share_of_step(parts[0].ready)
            if ready_at > self._kernel.now:
                yield Moment(ready_at)
            if stream.abandoned:
                return
            num_bytes = parts.popleft().num_bytes
            while parts and begun + seconds * share_of_step(parts[0].ready) <= self._kernel.now:
                num_bytes += parts.popleft().num_bytes
            yield from self._network.send_part(worker.index, server, num_bytes)
            stream.num_bytes += num_bytes
            stream.left_at = self._kernel.now
