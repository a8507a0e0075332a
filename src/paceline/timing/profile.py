"""Parts of a modelled cluster: its nodes, their links, its servers."""

import math

from paceline.settings import Bandwidth, NotNegative, Whole, settings


@settings("cluster.link")
class Link:
    """A way for messages, with room of its own in each direction.

    `latency`: seconds; `bandwidth`: bytes/s, inf (or None) for no limit.
    """

    latency: NotNegative
    bandwidth: Bandwidth

    def seconds(self, num_bytes: float) -> float:
        """Return the time from the first byte's leaving to the last one's arrival."""
        return self.latency + num_bytes / self.bandwidth


@settings("cluster")
class ClusterProfile:
    """The cost of messages and servers on a modelled cluster, and who is on which node.

    `link`: the network interface that the workers of a node share; `node_link`: a worker's or
    server's own inside a node. `workers_per_node` None: all processes are on one machine; else
    servers are on nodes of their own, one each. `node_cores`: cores that pass the messages inside a
    node, each of which keeps one busy; None: enough for all at once. `allreduce_link`: what
    all-reduces go over inside a node, where that is not what pushes do; None: the same.

    A server takes `server_seconds` for a push, and updates `server_bandwidth` bytes of weights a
    second besides.
    """

    link: Link
    node_link: Link
    workers_per_node: Whole | None
    server_seconds: NotNegative
    server_bandwidth: Bandwidth
    node_cores: Whole | None = None
    allreduce_link: Link | None = None

    @property
    def one_machine(self) -> bool:
        """Say whether workers and servers are on the same machine."""
        return self.workers_per_node is None

    def num_nodes(self, workers: int) -> int:
        """Count the nodes that so many workers fill, the last one maybe in part.

        Nodes of servers are not counted.
        """
        return 1 if self.workers_per_node is None else math.ceil(workers / self.workers_per_node)

    def node_of(self, worker: int) -> int:
        """Return the number of the worker's node: workers fill one node after the other."""
        return 0 if self.workers_per_node is None else worker // self.workers_per_node

    def largest_node(self, workers: int) -> int:
        """Count the workers on the first node, which is full if any is."""
        return min(workers, self.workers_per_node or workers)

    def levels(self, workers: int) -> list[tuple[Link, int]]:
        """List the links over which `workers` meet, and how many meet over each.

        First the workers of the fullest node, then the nodes; a link over which nobody has to meet
        is left out.
        """
        inside, nodes = self.largest_node(workers), self.num_nodes(workers)
        levels = [(self.node_link, inside), (self.link, nodes)]
        return [(link, count) for link, count in levels if count > 1]
