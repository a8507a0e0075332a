"""Base class of the clusters of several machines, whose processes torchrun or srun started."""

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from paceline.cluster.cluster import AbstractWallClockCluster, Device, choose, places
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import Whole, settings
from paceline.timing.profile import ServerPlacement

if TYPE_CHECKING:
    from paceline.cluster.world import World


@settings("cluster")
class AbstractWorldCluster(AbstractWallClockCluster, ABC):
    """Cluster of nodes on which a process was started for each worker and server; workers fill one
    node after the other.

    `workers_per_node`: processes of workers on a node; None to spread them evenly.
    `server_placement`: each server is on its own node after those of the workers, or servers are on
    the workers' nodes in turn.
    """

    workers_per_node: Whole | None
    server_placement: ServerPlacement

    @abstractmethod
    def num_nodes(self, num_training: int, num_servers: int) -> int:
        """Return the number of nodes for so many processes; some may stay empty."""

    @abstractmethod
    def world(self, nodes: list[int]) -> "World":
        """Return the started processes, for a run with processes on these nodes, by rank."""

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        super().check(scheme, num_workers)
        self.places(*self.num_processes(scheme, num_workers))

    def device(self, scheme: AbstractScheme, num_workers: int) -> Device:
        """Return the device of all workers; "auto" assumes nodes like this machine."""
        if self.accelerator == "gpu":
            return "cuda"  # this machine may be the only one without any
        each = self.workers_per_accelerator
        return choose(self.accelerator, self.workers_per_node or 1, each)

    def on_one_machine(self, num_training: int, num_servers: int) -> bool:
        return not any(self.places(num_training, num_servers))

    def places(self, num_training: int, num_servers: int) -> list[int]:
        """Return the node of each process, by rank. Raises SettingError for too few nodes."""
        there = self.num_nodes(num_training, num_servers)
        apart = num_servers if self.server_placement == "own_nodes" else 0
        each = self.workers_per_node or math.ceil(num_training / max(1, there - apart))
        filled = math.ceil(num_training / each)
        if filled + apart > there:
            servers = f" and {apart} of servers" if apart else ""
            message = f"{filled} nodes of workers{servers} are needed, not {there}"
            raise SettingError("cluster", message)
        return places(num_training, num_servers, each, self.server_placement)

    def run(self, task: Task) -> list[Any]:
        nodes = self.places(task.num_training, task.num_servers)
        return self.world(nodes).run(task, nodes)
