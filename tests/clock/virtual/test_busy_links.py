"""Which links of a modelled network its messages keep busy, and in which direction."""

import math

from paceline.clock.virtual.kernel import Buses, Cores, Kernel
from paceline.clock.virtual.virtual_network import VirtualNetwork
from paceline.timing.profile import ClusterProfile, Link


def test_a_link_is_busy_in_the_direction_of_its_bytes():
    """At 100 bytes/s; no two directions have as many bytes, but those of one message."""
    kernel = Kernel()
    profile = ClusterProfile(Link(0.5, 100), Link(0, math.inf), 1, 0, math.inf)
    buses = Buses(kernel, Cores(kernel, None), 0)
    network = VirtualNetwork(profile, 2, 1, kernel=kernel, buses=buses)
    kernel.begin([network.push(0, 0, 200), network.answer(0, 1, 300), network.pass_on(1, 0, 50)])
    assert not any(kernel.run())
    assert network.busy_seconds() == {
        **{"node 0, out": 2.0, "server 0, in": 2.0},
        **{"server 0, out": 3.0, "node 1, in": 3.0},
        **{"node 1, out": 0.5, "node 0, in": 0.5},
    }
