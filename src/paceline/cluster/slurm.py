"""Cluster under Slurm. A point runs in a job, which `study/queue/` submits. The job's first process
is the head; if there are several nodes, srun starts an agent on each.
"""

import atexit
import os
import re
import secrets
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import Annotated, Any

from paceline.cluster.agent_wire import KEY
from paceline.cluster.agents import AbstractAgentsCluster
from paceline.cluster.cluster import Device, SlurmQueue
from paceline.cluster.launcher import launch_task
from paceline.cluster.node_agents import NodeAgents
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.exchange.node import address_toward
from paceline.scheme.rule import AbstractScheme
from paceline.settings import UNKEYED, Positive, settings

_END_SECONDS = 5
_NODE_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")


@settings("cluster")
class SlurmCluster(SlurmQueue, AbstractAgentsCluster):
    """Cluster under Slurm. `patience_seconds`: time to wait for the agents of a job's nodes."""

    patience_seconds: Annotated[Positive, UNKEYED]

    def num_nodes(self, num_training: int, num_servers: int) -> int:
        apart = num_servers if self.server_placement == "own_nodes" else 0
        return -(-num_training // (self.workers_per_node or num_training)) + apart

    def device(self, scheme: AbstractScheme, num_workers: int) -> Device:
        return "cuda" if self.accelerator == "gpu" else "cpu"

    @property
    def submitted_to(self) -> SlurmQueue:
        return self

    def needs_of(self, num_training: int, num_servers: int) -> dict[str, Any]:
        places = self.places(num_training, num_servers)
        workers = max(Counter(places[:num_training]).values())
        gpus = -(-workers // self.workers_per_accelerator) if self.accelerator == "gpu" else None
        cpus = max(Counter(places).values()) * self.threads_per_worker
        return self.needs(1 + max(places), cpus, gpus)

    def agents(self, num_nodes: int) -> NodeAgents:
        crew = _crew()
        crew.start(num_nodes)
        crew.agents.meet(num_nodes, self.patience_seconds)
        return crew.agents

    def run(self, task: Task) -> list[Any]:
        if "SLURM_JOB_ID" not in os.environ:
            message = "its points run in jobs; paceline sweep and paceline train queue them"
            raise SettingError("cluster", message)
        if self.num_nodes(task.num_training, task.num_servers) == 1:
            return launch_task(task)
        return super().run(task)


class _Crew:
    """Agents of a job, for one point after the other."""

    def __init__(self) -> None:
        self._key = secrets.token_hex(32)
        self._srun: subprocess.Popen[bytes] | None = None
        self.agents = NodeAgents((_own_address(), 0), bytes.fromhex(self._key))
        atexit.register(self.close)

    def start(self, num_nodes: int) -> None:
        """Start an agent on each node, again if one has ended."""
        if self._srun is not None:
            if self.agents.num_living() >= num_nodes:
                return
            self.agents.dismiss()
            self._end()
        host, port = self.agents.address
        step = [f"--nodes={num_nodes}", f"--ntasks={num_nodes}", "--ntasks-per-node=1", "--overlap"]
        if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):  # a step does not inherit them
            step.append(f"--cpus-per-task={cpus}")
        # Slurm sends SIGTERM to a step before it takes nodes away: no reason for a point to fail
        agent = ["sh", "-c", 'trap "" TERM; exec "$@"', "sh"]
        agent += [sys.executable, "-m", "paceline", "agent", f"{host}:{port}"]
        self._srun = subprocess.Popen(
            ["srun", "--kill-on-bad-exit=0", *step, *agent], env={**os.environ, KEY: self._key}
        )

    def close(self) -> None:
        """Disconnect the agents before Slurm ends their step."""
        self.agents.close()
        self._end()

    def _end(self) -> None:
        if self._srun is not None:
            try:
                self._srun.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._srun.kill()


_crew = cache(_Crew)  # one in a process


def _own_address() -> str:
    """Return the address at which the other nodes of this job reach this one."""
    names = _output("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    other = next(name for name in names if name != os.environ["SLURMD_NODENAME"])
    found = _NODE_ADDRESS.search(_output("scontrol", "--oneliner", "show", "node", other))
    return address_toward(found[1] if found else other)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SettingError("cluster", f"{' '.join(command)}: {done.stderr}")
    return done.stdout
