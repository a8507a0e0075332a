"""Base class of clusters: where the processes of a run are, and on which clock they train."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from paceline.clock.reports import TrainingClock
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme
from paceline.settings import UNKEYED, Flag, Neutral, NotNegative, Positive, Whole, settings
from paceline.timing.profile import ServerPlacement
from paceline.timing.step_times import AbstractPacing, StepTimes
from paceline.timing.workload import OWN, AbstractWorkload

if TYPE_CHECKING:
    import torch

    from paceline.clock.run_spec import RunSpec
    from paceline.clock.split.split_worker import SplitWorker
    from paceline.clock.training_strategy import AbstractTrainingStrategy

Device = Literal["cpu", "cuda"]
_DRIVERS = ("/dev/nvidiactl", "/dev/nvhost-ctrl-gpu", "/dev/dxg", "/dev/kfd")  # NVIDIA, WSL, AMD


def choose(accelerator: Literal["auto", "cpu", "gpu"], workers: int, workers_each: int) -> Device:
    """Choose the kind of device for all `workers` of a run, `workers_each` of which share a GPU,
    without initialising CUDA, so that processes can still be forked. With fewer GPUs than needed
    "auto" is the CPU, and "gpu" raises SettingError.
    """
    needed = -(-workers // workers_each)
    if accelerator == "cpu" or (gpus := num_gpus()) >= needed:
        return "cpu" if accelerator == "cpu" else "cuda"
    if accelerator == "gpu":
        need = "a GPU each" if workers_each == 1 else f"a GPU for each {workers_each}"
        message = f"{workers} workers need {need}, and this machine has {gpus}; fewer workers, "
        message += "cluster.accelerator=cpu, or more cluster.workers_per_accelerator"
        raise SettingError("workers", message)
    return "cpu"


def num_gpus() -> int:
    """Count the GPUs that this process may use; without a driver, torch is not imported for it."""
    if not any(map(os.path.exists, _DRIVERS)):
        return 0
    import torch  # takes seconds

    return torch.cuda.device_count()


def device(accelerator: Device, local_worker: int, workers_each: int = 1) -> torch.device:
    """Return the device of a worker of a machine, on which `workers_each` share a GPU."""
    import torch

    index = local_worker // workers_each
    return torch.device("cuda", index) if accelerator == "cuda" else torch.device("cpu")


def device_of_server(accelerator: Device, local_rank: int, workers_each: int) -> torch.device:
    """Return the device of a server, whose rank on its machine follows those of the workers: a GPU
    without workers if there is one, else the workers' in turn.
    """
    import torch

    if accelerator == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", -(-local_rank // workers_each) % torch.cuda.device_count())


@settings("cluster")
class SlurmQueue:
    """Demands of a point on Slurm besides nodes; None leaves the choice to Slurm.

    `minutes`: time limit of a point. `memory_gb`: memory of a node. `arguments`: more arguments of
    sbatch by name. `points_per_job`: number of points that run one after the other in a job.
    `wait`: True to wait until the points have ended.
    """

    partition: Annotated[str | None, UNKEYED]
    account: Annotated[str | None, UNKEYED]
    minutes: Annotated[Whole, UNKEYED]
    memory_gb: Annotated[Positive | None, UNKEYED]
    arguments: Annotated[dict[str, Any], UNKEYED]
    points_per_job: Annotated[Whole, UNKEYED]
    wait: Annotated[Flag, UNKEYED]

    def needs(self, nodes: int, cpus: int, gpus: int | None) -> dict[str, Any]:
        """Return what a point needs by submitit's names. `cpus` and `gpus` are those of each node,
        on which one process starts the others.
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


Kind = Literal["measured", "paced", "virtual"]
_MOST_SECONDS = 2_000_000  # 23 days; sockets count the milliseconds of a wait in 32 bits


@settings("cluster")
class AbstractCluster(AbstractPacing, ABC):
    """A kind of cluster: one file in this room, and one or more in conf/cluster.

    `accelerator`: device that computes gradients. `threads_per_worker`: CPU threads of a worker.
    `timeout_seconds`: silence after which a process is killed. `server_seconds`: least time of a
    server for a push. `server_device`: where servers have their weights; "auto" is a GPU if workers
    compute on GPUs of the same machine. `workers_per_accelerator`: processes of workers that share
    a GPU. The fields of AbstractPacing describe the emulated accelerator.
    """

    accelerator: Literal["auto", "cpu", "gpu"]
    threads_per_worker: Annotated[int, Field(strict=True, ge=1, le=1024)]
    timeout_seconds: Annotated[float, Field(strict=True, ge=0.1, le=_MOST_SECONDS)]
    server_seconds: NotNegative
    server_device: Annotated[Literal["auto", "cpu", "cuda"], Neutral("auto")] = Field(
        default="auto", kw_only=True
    )
    workers_per_accelerator: Annotated[Whole, Neutral(1)] = Field(default=1, kw_only=True)

    @property
    def peer_seconds(self) -> float:
        """Longest wait of a process for another; the launcher finds a silent one earlier."""
        return 1.25 * self.timeout_seconds + 5

    @property
    def submitted_to(self) -> SlurmQueue | None:
        """Queue in which points wait for a job; None if they run where the command is typed."""
        return None

    def needs_of(self, num_training: int, num_servers: int) -> dict[str, Any]:
        """Return what a point with so many processes needs in the queue, by submitit's names."""
        assert self.submitted_to is not None
        cpus = (num_training + num_servers) * self.threads_per_worker
        return self.submitted_to.needs(1, cpus, None)

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """Kind of the numbers that a run on this cluster measures."""

    @abstractmethod
    def run(self, task: Task) -> list[Any]:
        """Run the processes of `task`; return their return values by rank, workers first. A
        LostWorker stands for a worker that died while its servers continued. Raises ProcessFailure
        for the first process that failed, or SettingError if a setting was the cause.
        """

    @abstractmethod
    def num_processes(self, scheme: AbstractScheme, num_workers: int) -> tuple[int, int]:
        """Return the number of processes that train, and of those that serve."""

    @abstractmethod
    def strategy(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        device: torch.device,
        clock: TrainingClock,
        split: SplitWorker | None = None,
    ) -> AbstractTrainingStrategy:
        """Return the Lightning strategy of a training process that has joined the process group.
        `clock`: training clock of the process, which measures real seconds on every cluster.
        `split`: this process's part of a split worker; None for a whole worker.
        """

    def carried_out_by_ddp(self, scheme: AbstractScheme) -> bool:
        """Return True if Lightning's DDP replaces the scheme's rule."""
        return False

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        """Raise SettingError for a scheme that this cluster cannot run."""
        self.device(scheme, num_workers)
        self.check_starter()

    def check_starter(self) -> None:
        """Raise SettingError if torchrun started this process as one of several."""
        if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("WORLD_SIZE") == "1":
            return
        from paceline.exchange.process_group import TOKEN  # torch takes seconds

        if TOKEN not in os.environ:  # our launcher also sets torchrun's variables
            message = "it does not use the processes that torchrun started; cluster=torchrun does"
            raise SettingError("cluster", message)

    def check_shards(self, workers: int, shards: int) -> None:
        """Raise SettingError if workers cannot have so many processes on this cluster."""

    def check_workload(self, workload: AbstractWorkload) -> None:
        """Raise SettingError for a workload whose step time this cluster does not know."""
        if workload.name != OWN and self.step_seconds is None:
            message = (
                f"real processes train their own network, not {workload.name}; only if paced, "
            )
            message += "by cluster.step_seconds, do they send messages of its size"
            raise SettingError("workload", message)

    def fill(self, module: Any, workload: AbstractWorkload, weight_bytes: int) -> None:
        """Extend the real messages of `module` to the bytes of the workload. `weight_bytes`: bytes
        of one weight in training. Raises SettingError("workload") if the module's have more.
        """

    def device(self, scheme: AbstractScheme, num_workers: int) -> Device:
        """Return the device of all workers. Raises SettingError for too few GPUs."""
        num_training, _ = self.num_processes(scheme, num_workers)
        return choose(self.accelerator, num_training, self.workers_per_accelerator)

    def on_one_machine(self, num_training: int, num_servers: int) -> bool:
        """Return True if so many processes all run on one machine."""
        return True

    def device_of_servers(self, scheme: AbstractScheme, num_workers: int) -> Device:
        """Return where the servers' weights are. Raises SettingError("cluster.server_device") for
        GPUs that servers cannot use.
        """
        computing, wished = self.device(scheme, num_workers), self.server_device
        if wished == "cpu" or (wished, computing) == ("auto", "cpu"):
            return "cpu"
        if computing == "cuda" and self.on_one_machine(*self.num_processes(scheme, num_workers)):
            return "cuda"
        if wished == "auto":
            return "cpu"
        reason = "workers and servers share GPUs inside one machine only"
        if computing == "cpu":
            there = num_gpus()
            reason = "the workers compute on the CPU" if there else "this machine has no GPU"
        raise SettingError("cluster.server_device", f"{reason}; cpu is needed, not cuda")


def places(
    num_training: int, num_servers: int, workers_per_node: int, placement: ServerPlacement
) -> list[int]:
    """Return the node of each process by rank. Workers fill one node after the other. Each server
    is on its own node after them, or servers are on the workers' nodes in turn.
    """
    num_nodes = math.ceil(num_training / workers_per_node)
    workers = [rank // workers_per_node for rank in range(num_training)]
    if placement == "own_nodes":
        return [*workers, *range(num_nodes, num_nodes + num_servers)]
    return workers + [server % num_nodes for server in range(num_servers)]


@settings("cluster")
class AbstractWallClockCluster(AbstractCluster, ABC):
    """A cluster of real processes, which `run` starts and connects."""

    @property
    def kind(self) -> Kind:
        paced = self.step_seconds is not None or self.server_seconds > 0
        return "paced" if paced else "measured"

    def check(self, scheme: AbstractScheme, num_workers: int) -> None:
        super().check(scheme, num_workers)
        self.device_of_servers(scheme, num_workers)

    def num_processes(self, scheme: AbstractScheme, num_workers: int) -> tuple[int, int]:
        return num_workers, scheme.servers

    def carried_out_by_ddp(self, scheme: AbstractScheme) -> bool:
        return scheme.carried_out_by_ddp

    def fill(self, module: Any, workload: AbstractWorkload, weight_bytes: int) -> None:
        from paceline.model.filling import fill  # Lightning takes seconds

        own = weight_bytes * sum(weight.numel() for weight in module.parameters())
        fill(module, workload.message_bytes(own, own), weight_bytes)

    def paced_times(self, run: RunSpec) -> StepTimes | None:
        """Return the durations of all steps of a run; None if steps are not emulated."""
        return self.step_times(run.batch_size, run.seed)

    def strategy(
        self,
        scheme: AbstractScheme,
        run: RunSpec,
        device: torch.device,
        clock: TrainingClock,
        split: SplitWorker | None = None,
    ) -> AbstractTrainingStrategy:
        """Return Lightning's own DDP if that is equivalent, and the worker is not split."""
        from paceline.clock.wall import ddp, rule_strategy  # Lightning takes seconds
        from paceline.exchange.process_group import worker_index
        from paceline.timing.step_times import Pace

        times = self.paced_times(run)
        if times is not None and split is not None:
            times = replace(times, step_seconds=times.step_seconds / split.shards)
        pace = Pace(times, worker_index()) if times else None
        if scheme.carried_out_by_ddp:
            if split is not None:
                strategy = ddp.SplitAllReduceStrategy(device)
            elif run.num_workers == 1:
                strategy = ddp.OneWorkerStrategy(device)
            else:
                how, paced = (scheme.collective, scheme.compression), pace is not None
                strategy = ddp.SyncAllReduceStrategy(
                    run.timeout_seconds, *how, paced=paced, device=device
                )
            strategy.prepare(run, clock=clock, pace=pace, split=split)
            return strategy
        if split is not None and not split.is_first:
            most = rule_strategy.most_steps(Counts(scheme, run.num_workers), run)
            return rule_strategy.ShardStrategy(split, run, most, device, pace)
        return rule_strategy.RuleStrategy(
            scheme, run, device=device, clock=clock, pace=pace, split=split
        )
