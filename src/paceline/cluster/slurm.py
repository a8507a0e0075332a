"""Cluster under Slurm. A point runs in a job, which `study/submission.py` submits. The job's first
process is the head. If there are several nodes, srun starts its followers there, one for each
worker and server of the point.
"""

import atexit
import os
import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from paceline.cluster.cluster import Device, SlurmQueue
from paceline.cluster.launcher import launch_task
from paceline.cluster.supervisor import Task
from paceline.cluster.world_cluster import AbstractWorldCluster
from paceline.errors import SettingError
from paceline.scheme.rule import AbstractScheme
from paceline.settings import settings

if TYPE_CHECKING:
    from paceline.cluster.world import World

_END_SECONDS = 5
_NODE_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")


@settings("cluster")
class SlurmCluster(SlurmQueue, AbstractWorldCluster):
    """Cluster under Slurm."""

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

    def run(self, task: Task) -> list[Any]:
        if "SLURM_JOB_ID" not in os.environ:
            message = "its points run in jobs; paceline sweep and paceline train queue them"
            raise SettingError("cluster", message)
        if self.num_nodes(task.num_training, task.num_servers) == 1:
            return launch_task(task)
        return super().run(task)

    def world(self, nodes: list[int]) -> "World":
        global _step
        shape = 1 + max(nodes), max(Counter(nodes).values())
        if _step is not None and (_step.shape != shape or not _step.world.is_whole):
            _step.end()
            _step = None
        _step = _step or _Step(shape)
        return _step.world


class _Step:
    """A step of the job, in which srun has started so many nodes, and followers on each."""

    def __init__(self, shape: tuple[int, int]) -> None:
        import torch.distributed as dist  # torch takes seconds

        from paceline.cluster.world import World

        self.shape = nodes, per_node = shape
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            "localhost", 0, is_master=True, wait_for_workers=False
        )
        self.world = World(store, nodes, per_node)
        tasks = [f"--nodes={nodes}", f"--ntasks={nodes * per_node}"]
        tasks += [f"--ntasks-per-node={per_node}", "--distribution=block"]
        if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):  # those of the node
            tasks.append(f"--cpus-per-task={max(1, int(cpus) // per_node)}")
        # Slurm sends SIGTERM to a step before it takes nodes away: no reason for a point to fail
        own = 'trap "" TERM; export RANK=$SLURM_PROCID; exec "$@"'
        follower = ["sh", "-c", own, "sh", sys.executable, "-m", "paceline.cluster.world"]
        self._srun = subprocess.Popen(
            ["srun", "--overlap", "--kill-on-bad-exit=0", *tasks, *follower],
            env={
                **os.environ,
                "MASTER_ADDR": _own_address(),
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            },
        )
        atexit.register(self.end)

    def end(self) -> None:
        """Let the followers go before Slurm ends their step."""
        atexit.unregister(self.end)
        self.world.dismiss(_END_SECONDS)
        try:
            self._srun.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._srun.terminate()
            self._srun.wait()


_step: _Step | None = None  # of this job


def _own_address() -> str:
    """Return the address at which the other nodes of this job reach this one."""
    from paceline.exchange.process_group import address_toward  # torch takes seconds

    names = _output("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    other = next(name for name in names if name != os.environ["SLURMD_NODENAME"])
    found = _NODE_ADDRESS.search(_output("scontrol", "--oneliner", "show", "node", other))
    return address_toward(found[1] if found else other)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SettingError("cluster", f"{' '.join(command)}: {done.stderr}")
    return done.stdout
