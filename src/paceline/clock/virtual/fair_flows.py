"""Messages that share ports of one bandwidth by max-min fairness, each by its weight.

No message can get more for its weight without less for one that has no more for its own (Bertsekas
and Gallager 1992, Data Networks, section 6.5.2): with equal weights what fair queueing, and TCP
flows of equal round-trip time, come to.
"""

import numpy as np
from numpy.typing import NDArray

from paceline.clock.links import Process
from paceline.clock.virtual.kernel import Event, Kernel, Plan

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_ROUNDING = 1e-9  # of a message's bytes, and of a port's share


class FairFlows:
    """Messages under way, each through one outgoing and one incoming port.

    `bandwidth`: of each port [bytes/s]. Rates are shared anew at each instant at which messages
    begin or end.
    """

    def __init__(self, kernel: Kernel, num_ports: int, bandwidth: float) -> None:
        self._kernel, self._bandwidth = kernel, bandwidth
        self._num_ports = num_ports
        self._out = np.zeros(0, np.intp)
        self._into = np.zeros(0, np.intp)
        self._size = np.zeros(0)
        self._weight = np.zeros(0)
        self._left = np.zeros(0)  # bytes, at `_since`
        self._rate = np.zeros(0)
        self._arrived: list[Event] = []
        self._begun: list[tuple[int, int, float, float, Event]] = []  # at this instant
        self._since = 0.0
        self._plan: Plan | None = None

    def send(self, out: int, into: int, num_bytes: float, weight: float = 1.0) -> Process[None]:
        """Wait until `num_bytes` have passed the ports `out` and `into`."""
        arrived = Event()
        if not self._begun:
            self._kernel.start(self._begin())
        self._begun.append((out, into, num_bytes, weight, arrived))
        yield arrived

    def _begin(self) -> Process[None]:
        yield None  # all messages that begin at this instant
        begun, self._begun = self._begun, []
        outs, intos, sizes, weights, arrivals = zip(*begun, strict=True)
        self._advance()
        self._out = np.concatenate([self._out, outs])
        self._into = np.concatenate([self._into, intos])
        self._size = np.concatenate([self._size, sizes])
        self._weight = np.concatenate([self._weight, weights])
        self._left = np.concatenate([self._left, sizes])
        self._arrived.extend(arrivals)
        self._share()

    def _end(self) -> None:
        """Let the messages arrive that have passed; those left share the ports."""
        self._plan = None
        self._advance()
        passed = self._left <= _ROUNDING * self._size
        passed[np.argmin(self._left / self._rate)] = True  # for which this was planned
        for place in np.flatnonzero(passed):
            self._kernel.happen(self._arrived[place])
        kept = ~passed
        self._out, self._into = self._out[kept], self._into[kept]
        self._size, self._left = self._size[kept], self._left[kept]
        self._weight = self._weight[kept]
        self._arrived = [self._arrived[place] for place in np.flatnonzero(kept)]
        self._share()

    def _advance(self) -> None:
        if len(self._left):
            self._left = self._left - self._rate * (self._kernel.now - self._since)
        self._since = self._kernel.now

    def _share(self) -> None:
        """Share the ports anew, and plan the next arrival."""
        if self._plan is not None:
            self._kernel.cancel(self._plan)
            self._plan = None
        if not len(self._left):
            return
        ports = self._out, self._into, self._num_ports
        self._rate = max_min_rates(*ports, self._bandwidth, self._weight)
        seconds = max(0.0, float((self._left / self._rate).min()))
        self._plan = self._kernel.at(self._kernel.now + seconds, self._end)


def max_min_rates(
    out: Places, into: Places, num_ports: int, bandwidth: float, weights: Floats
) -> Floats:
    """Return the max-min fair rate of each flow [bytes/s].

    `out`, `into` [flows]: its two ports; `weights` [flows]. A port whose share, for weight 1, is
    the least on the way of each of its flows is full; these flows get that share by their weights,
    and what is left of the other ports is shared next.
    """
    rates = np.full(len(out), bandwidth)
    if len(out) == 1:
        return rates
    free = np.full(num_ports, bandwidth)
    waiting, outs, intos, sharing = np.arange(len(out)), out, into, weights
    while True:
        through = np.bincount(outs, sharing, num_ports) + np.bincount(intos, sharing, num_ports)
        share = np.full(num_ports, np.inf)
        np.divide(free, through, out=share, where=through > 0)
        least = np.minimum(share[outs], share[intos])
        lowest = np.full(num_ports, np.inf)
        np.minimum.at(lowest, outs, least)
        np.minimum.at(lowest, intos, least)
        full = share <= lowest * (1 + _ROUNDING)
        settled = full[outs] | full[intos]
        found = (least * sharing)[settled]
        rates[waiting[settled]] = found
        if settled.all():
            return rates
        for ports in (outs, intos):
            free -= np.bincount(ports[settled], found, minlength=num_ports)
        free = np.maximum(free, 0.0)
        waiting, sharing = waiting[~settled], sharing[~settled]
        outs, intos = outs[~settled], intos[~settled]
