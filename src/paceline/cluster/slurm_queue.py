"""Settings of a queue of Slurm, of which none is a part of a point's key."""

from typing import Any

from paceline.settings import Positive, Whole, settings


@settings("cluster")
class SlurmQueue:
    """Demands of a point on Slurm beside nodes; None leaves the choice to Slurm.

    `minutes`: limit of a point. `memory_gb`: of a node. `arguments`: more of sbatch's, by name.
    `points_per_job`: number of points that share an allocation, one after the other. `wait`: until
    the points have ended. `patience_seconds`: time to wait for the agents of a job's nodes.
    """

    partition: str | None
    account: str | None
    minutes: Whole
    memory_gb: Positive | None
    arguments: dict[str, Any]
    points_per_job: Whole
    wait: bool
    patience_seconds: Positive

    @property
    def asked(self) -> dict[str, Any]:
        """Parameters by submitit's names, without the shape and the limit of a job."""
        memory = self.memory_gb and f"{round(1024 * self.memory_gb)}M"
        arguments = {"requeue": True, **self.arguments}
        chosen = {"partition": self.partition, "account": self.account, "mem": memory}
        return {name: value for name, value in chosen.items() if value is not None} | {
            "additional_parameters": arguments
        }
