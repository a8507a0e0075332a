"""Settings of a queue of Slurm, none of which is part of a point's key."""

from typing import Annotated, Any

from paceline.settings import UNKEYED, Positive, Whole, settings


@settings("cluster")
class SlurmQueue:
    """Demands of a point on Slurm beside nodes; None leaves the choice to Slurm.

    `minutes`: limit of a point. `memory_gb`: of a node. `arguments`: more of sbatch's, by name.
    `points_per_job`: number of points that share an allocation, one after the other. `wait`: until
    the points have ended.
    """

    partition: Annotated[str | None, UNKEYED]
    account: Annotated[str | None, UNKEYED]
    minutes: Annotated[Whole, UNKEYED]
    memory_gb: Annotated[Positive | None, UNKEYED]
    arguments: Annotated[dict[str, Any], UNKEYED]
    points_per_job: Annotated[Whole, UNKEYED]
    wait: Annotated[bool, UNKEYED]

    def needs(self, nodes: int, cpus: int, gpus: int | None) -> dict[str, Any]:
        """Return the needs of a point by submitit's names.

        `cpus` and `gpus`: of each node. One process starts the others there.
        """
        chosen = {
            "nodes": nodes,
            "ntasks_per_node": 1,
            "cpus_per_task": cpus,
            "gpus_per_node": gpus,
            "partition": self.partition,
            "account": self.account,
            "mem": self.memory_gb and f"{round(1024 * self.memory_gb)}M",
            "time": self.minutes * self.points_per_job,
            "additional_parameters": {"requeue": True, **self.arguments},
        }
        return {name: value for name, value in chosen.items() if value is not None}
