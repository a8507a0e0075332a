"""Cluster of the machines on which torchrun started a process for each worker and server.

`torchrun --nnodes=2 --nproc-per-node=2 ... -m paceline train cluster=torchrun workers=4` makes the
process of rank 0 the head, and the others its followers. The head starts a follower in its own
place, since it supervises.
"""

import os
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

from paceline.cluster.world_cluster import AbstractWorldCluster
from paceline.errors import SettingError
from paceline.settings import settings

if TYPE_CHECKING:
    from paceline.cluster.world import World

_PATIENCE_SECONDS = 120


@settings("cluster")
class TorchrunCluster(AbstractWorldCluster):
    """Cluster of the machines on which torchrun started a process for each worker and server."""

    def num_nodes(self, num_training: int, num_servers: int) -> int:
        if not by_torchrun():
            message = "it needs torchrun --nproc-per-node=2 -m paceline train cluster=torchrun ..."
            raise SettingError("cluster", message)
        return int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"])

    def check_starter(self) -> None:
        """Accept torchrun; `num_nodes` refuses anything else."""

    def on_one_machine(self, num_training: int, num_servers: int) -> bool:
        from paceline.exchange.process_group import TOKEN  # torch takes seconds

        if TOKEN in os.environ:  # in a process of the run, which knows where the others are
            return os.environ["WORLD_SIZE"] == os.environ["LOCAL_WORLD_SIZE"]
        return super().on_one_machine(num_training, num_servers)

    def places(self, num_training: int, num_servers: int) -> list[int]:
        """Raises SettingError also if torchrun started too few processes on each node."""
        nodes = super().places(num_training, num_servers)
        most, there = max(map(nodes.count, nodes)), int(os.environ["LOCAL_WORLD_SIZE"])
        if most > there:
            message = f"{most} processes run on a node: torchrun --nproc-per-node={most}, not "
            raise SettingError("cluster", f"{message}{there}")
        return nodes

    def world(self, nodes: list[int]) -> "World":
        _follower_of_rank_0()
        return _world()


def by_torchrun() -> bool:
    """Return True if torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def let_others_go() -> None:
    """Tell the other processes that the head ends, and wait until they know, also those that come
    late: torchrun's store ends with the head, and they would look for it for minutes.
    """
    _world().dismiss(_PATIENCE_SECONDS, first=1)


@cache
def _world() -> "World":
    from paceline.cluster.world import World, open_store  # torch takes seconds

    size, per_node = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    return World(open_store(has_it=True), size // per_node, per_node)


@cache
def _follower_of_rank_0() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "paceline.cluster.world"])
