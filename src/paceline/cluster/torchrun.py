"""Cluster of machines on each of which torchrun started one process of the same command.

`torchrun --nnodes=2 --nproc-per-node=1 ... -m paceline train cluster=torchrun workers=4` makes the
process of rank 0 the head, which also starts an agent on its node; the other processes become
agents. They find the head's address in torchrun's store. Since anybody may write there, it holds
nothing else, and head and agents prove to each other that they know the key.
"""

import datetime
import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from paceline.cluster.agent_wire import agent_key, head
from paceline.cluster.agents import AbstractAgentsCluster
from paceline.cluster.node_agent import serve
from paceline.cluster.node_agents import NodeAgents
from paceline.errors import SettingError
from paceline.exchange.node import address_toward
from paceline.settings import settings

_HEAD, _NOTHING = "paceline/head", b"nothing to run"  # in torchrun's store
_TOLD = "paceline/told"  # and a rank, which has read that there is nothing to run
_PATIENCE = 600.0  # seconds for agents to come; torchrun itself waits until all nodes are there
_DAY = 86400.0


@settings("cluster")
class TorchrunCluster(AbstractAgentsCluster):
    """Cluster of the machines on each of which torchrun started a process."""

    def num_nodes(self, num_training: int, num_servers: int) -> int:
        if not by_torchrun():
            message = "it needs torchrun --nproc-per-node=1 -m paceline train cluster=torchrun ..."
            raise SettingError("cluster", message)
        if os.environ.get("LOCAL_WORLD_SIZE") != "1":
            message = "an agent starts all processes of its node: torchrun --nproc-per-node=1"
            raise SettingError("cluster", message)
        return int(os.environ["WORLD_SIZE"])

    def check_starter(self) -> None:
        """Accept torchrun; `num_nodes` refuses anything else."""

    def on_one_machine(self, num_training: int, num_servers: int) -> bool:
        """Compare what torchrun, or a run's launcher in its processes, says of all and of one."""
        return os.environ.get("WORLD_SIZE") == os.environ.get("LOCAL_WORLD_SIZE")

    def agents(self, num_nodes: int) -> NodeAgents:
        agents = _listening()
        agents.meet(num_nodes, _PATIENCE)
        return agents


def by_torchrun() -> bool:
    """Return True if torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def serve_torchrun(code: str) -> None:
    """Be the agent of this node until the head ends. `code`: digest of this node's source."""
    store = _store()
    store.wait([_HEAD], datetime.timedelta(seconds=_DAY))  # if the head dies, torchrun ends all
    told = store.get(_HEAD)
    if told == _NOTHING:
        store.set(f"{_TOLD}/{os.environ['RANK']}", "")
        return
    serve(head(told.decode(errors="replace")), agent_key(), code, _PATIENCE)


def let_others_go() -> None:
    """Tell the other processes to end if the head has never needed them, and wait until all know.

    The store goes with torchrun on the head's node, which ends at once if the head failed, and a
    process that comes later would look for it for minutes.
    """
    if not _listening.cache_info().currsize:
        _store().set(_HEAD, _NOTHING.decode())
        others = [f"{_TOLD}/{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))]
        with suppress(RuntimeError):  # one of them failed: torchrun says so
            _store().wait(others, datetime.timedelta(minutes=2))


@cache
def _listening() -> NodeAgents:
    """Listen from the first run of this process to its end, and announce the address."""
    agents = NodeAgents((address_toward(os.environ["MASTER_ADDR"]), 0), agent_key())
    host, port = agents.address
    _start_own_agent(f"{host}:{port}")
    _store().set(_HEAD, f"{host}:{port}")
    return agents


def _start_own_agent(head: str) -> None:
    torchruns = ("TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(torchruns)
    }
    subprocess.Popen([sys.executable, "-m", "paceline", "agent", head], env=environment)


@cache
def _store() -> Any:
    import torch.distributed as dist

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, is_master=False)  # type: ignore[reportPrivateImportUsage]
