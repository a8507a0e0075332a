"""Nodes on this machine, real processes in network namespaces, joined by shaped links."""

import math
from typing import Any

from paceline.cluster.cluster import Kind, Task
from paceline.cluster.launcher import launch_task
from paceline.cluster.namespaces import check_permitted, shaped_network
from paceline.cluster.wall_clock import AbstractWallClockCluster
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import Whole, settings
from paceline.timing.profile import Link, ServerPlacement


@settings("cluster")
class ShapedNodesCluster(AbstractWallClockCluster):
    """Nodes on this machine, between which only shaped links carry messages (Linux, as root).

    `workers_per_node`: number of workers on a node; inside it they share memory. Each process of a
    split worker counts as one. `link`: of each node; its bandwidth counts bytes of messages, its
    latency cannot be set. `server_placement`: each server is on a node of its own, or servers are
    on the workers' nodes in turn.
    """

    workers_per_node: Whole
    server_placement: ServerPlacement
    link: Link

    @property
    def kind(self) -> Kind:
        return "paced"

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        super().check(scheme, num_workers)
        if self.link.latency:
            raise SettingError("cluster.link.latency", "it cannot be emulated; it must be 0")
        if self.link.unevenness:
            raise SettingError("cluster.link.unevenness", "TCP decides; it must be 0")
        if math.isinf(self.link.bandwidth):
            raise SettingError("cluster.link.bandwidth", "a value is needed")
        check_permitted()

    def run(self, task: Task) -> list[Any]:
        num_nodes = math.ceil(task.num_training / self.workers_per_node)
        nodes = [rank // self.workers_per_node for rank in range(task.num_training)]
        if self.server_placement == "own_nodes":
            nodes += range(num_nodes, num_nodes + task.num_servers)
        else:
            nodes += [server % num_nodes for server in range(task.num_servers)]
        with shaped_network(1 + max(nodes), self.link.bandwidth) as network:
            namespaces = [network.namespaces[node] for node in nodes]
            return launch_task(task, address=network.address, namespaces=namespaces)
